"""What the tests of moves share: a program that works until it is told to end, servers, and moving it about."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
BUILD = pathlib.Path(os.environ["GRUS_BUILD"])
SOURCE = pathlib.Path(os.environ["GRUS_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench"))

from moving import Session  # noqa: E402
from serving import Server, wait_for  # noqa: E402,F401  # the latter for those that import this

GRUS = BUILD / "bin/grus"
SUBJECT = BUILD / "bin/tests/move_subject"
WORKLOADS = BUILD / "bin/workloads"
FINGERPRINT = os.environ.get("MOVES_FINGERPRINT")  # how all moves compare pages that don't say
SLOWER = 4 if os.environ.get("GRUS_SANITIZE") else 1
SECONDS = 120 * SLOWER
# PoCL offers what memory is free when it starts; here all devices offer the same.
ENVIRONMENT = os.environ | {"POCL_MEMORY_LIMIT": "2", "POCL_DEVICES": "pthread pthread"}


class Subject:
    """A program that works until it is told to end."""

    def __init__(self, *arguments, options=(), environment=None, before=()):
        self.folder = tempfile.TemporaryDirectory(prefix="grus-moves-")
        self.environment = ENVIRONMENT | {"XDG_RUNTIME_DIR": self.folder.name} | (environment or {})
        self.process = subprocess.Popen([*before, GRUS, "run", *options, "--", SUBJECT, *map(str, arguments)],
                                        env=self.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.session = Session(self.process.pid, self.environment)

    def __enter__(self):
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise AssertionError(f"{line}{self.process.stderr.read()}")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def ask(self, command, **request):
        if FINGERPRINT:
            request = {"fingerprint": FINGERPRINT} | request
        answer = self.session.ask(command=command, **request)
        if answer is None:
            raise AssertionError(f"no answer: {self.process.poll()} {self.process.stderr.read()}")
        return answer

    def say(self, line):
        """For the program's input; answers with a line of its output."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        """What it tells at its end."""
        output, errors = self.process.communicate(timeout=SECONDS)
        if self.process.returncode or not output.strip().endswith("right"):
            raise AssertionError(f"status {self.process.returncode}: {output}{errors}")
        return json.loads(output.strip().removesuffix("right"))


class TestCase(unittest.TestCase):
    def server(self, kind="unix", **environment):
        return self.enterContext(Server(GRUS, kind, None, ENVIRONMENT | environment, errors=subprocess.DEVNULL))

    def subject(self, *arguments, **options):
        return self.enterContext(Subject(*arguments, **options))

    def move(self, subject, **where):
        answer = subject.ask("move", **where)
        if answer.get("error") == "cancelled":
            subject.end()  # tells what is wrong with it
        self.assertTrue(answer["ok"], answer)
        return answer

    def refused(self, subject, command="move", **where):
        answer = subject.ask(command, **where)
        self.assertFalse(answer["ok"], answer)
        return answer["error"]

    def places(self):
        """One of each kind, so that going round makes every kind of move."""
        return [{"to": "local", "device": "0:1"}, {"to": self.server().address}, {"to": self.server("tcp").address},
                {"to": "local", "device": "0:0"}]

    def round_trip(self, *subject, times=3, **options):
        subject = self.subject(*subject, **options)
        for place in self.places() * times:
            self.move(subject, **place)
            time.sleep(0.02)
        self.assertGreater(subject.end()["rounds"], times)
