#!/usr/bin/python3
"""Moves during which something dies, breaks or fills up, at random moments. A program that was allowed to go on ends with
the right results; one that lost its device gets OpenCL errors, and never hangs; nothing is left anywhere."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
SOURCE = pathlib.Path(os.environ["GRUS_SOURCE"])
sys.path.append(str(SOURCE / "tests/remote"))

from subjects import ENVIRONMENT, GRUS, SECONDS, Subject, TestCase  # noqa: E402
from faults_test import Link  # noqa: E402
from serving import Server, wait_for  # noqa: E402

SUBJECT = ("busy", 8, 4, 4)


def held_by(pid):
    """What a process has open or mapped that a move might have left there."""
    process = pathlib.Path(f"/proc/{pid}")
    shared = {line.split()[-1] + line.split()[4] for line in (process / "maps").read_text().splitlines()
              if "memfd:grus" in line}
    return {"descriptors": len(list((process / "fd").iterdir())), "threads": len(list((process / "task").iterdir())),
            "shared memory": len(shared)}


def kill(server):
    """The server and all of its workers."""
    for pid in [*server.workers(), server.process.pid]:
        os.kill(pid, signal.SIGKILL)


class Faults(TestCase):
    def setUp(self):
        if os.environ.get("GRUS_SANITIZE"):
            self.skipTest("the moments are chosen for programs at their usual speed")
        self.chance = random.Random(4)
        self.counts = {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def tearDown(self):
        print(f"{self._testMethodName}: {self.counts}", file=sys.stderr)

    def another(self, kind="unix", **how):
        return Server(GRUS, kind, None, ENVIRONMENT, errors=subprocess.DEVNULL, **how)

    def disturbed(self, subject, seconds, harm, **request):
        """The answer to a request during which harm is done, so many seconds after its beginning; None if the program ended."""
        timer = threading.Timer(seconds, harm)
        timer.start()
        try:
            return subject.session.ask(**request)
        finally:
            timer.join()

    def expect_nothing_more(self, pid, before, what):
        def more():
            return {name: (before[name], count) for name, count in held_by(pid).items() if count > before[name]}

        self.assertTrue(wait_for(lambda: not more(), 10), f"{what} has more than before: {more()}")

    def expect_lost(self, subject):
        """It can't go on, so it is told, and ends."""
        output, errors = subject.process.communicate(timeout=SECONDS)
        self.assertEqual(subject.process.returncode, 1, output + errors)
        self.assertIn("OpenCL error", output)

    def usual_time(self, subject, there, back):
        """Of a move, in seconds."""
        start = time.monotonic()
        self.move(subject, **there)
        taken = time.monotonic() - start
        self.move(subject, **back)
        return taken

    def started(self, *arguments, **how):
        return Subject(*(arguments or SUBJECT), **how)

    def destination_dies(self, moments):
        left = moments
        while left > 0:
            with self.started() as subject:
                with self.another() as server:
                    usual = self.usual_time(subject, {"to": server.address}, {"to": "local"})
                before = held_by(subject.process.pid)
                is_lost = False
                while left > 0 and not is_lost:
                    left -= 1
                    with self.another(("unix", "tcp")[left % 2]) as server:
                        answer = self.disturbed(subject, self.chance.uniform(0, usual), lambda server=server: kill(server),
                                                command="move", to=server.address)
                        is_lost = answer is None or answer["ok"]
                    self.count("it was there already" if is_lost else "it went on")
                    if not is_lost:
                        self.assertEqual(subject.ask("describe")["at"], "local")
                        self.expect_nothing_more(subject.process.pid, before, "the program")
                if is_lost:
                    self.expect_lost(subject)
                else:
                    subject.end()

    def source_dies(self, moments):
        with self.another() as there:
            before = held_by(there.process.pid)
            for moment in range(moments):
                with self.another(("unix", "tcp")[moment % 2]) as source, \
                     self.started(options=["--gpu", source.address]) as subject:
                    answer = self.disturbed(subject, self.chance.uniform(0, 0.3), lambda source=source: kill(source),
                                            command="move", to=("local", there.address)[moment % 2])
                    if answer and answer["ok"]:
                        self.count("it was away already")
                        subject.end()
                    else:
                        self.count("it was told")
                        self.expect_lost(subject)
                self.assertTrue(wait_for(lambda: len(there.workers()) == 1, 10), "a session is left at the destination")
                self.expect_nothing_more(there.process.pid, before, "the destination")

    def lay_cable(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("network namespaces need root, and `ip`")
        try:
            return self.enterContext(Link())
        except subprocess.CalledProcessError as error:
            self.skipTest(f"this system makes no network namespaces: {(error.stderr or '').strip()}")

    def link_is_cut(self, moments):
        """Every other time for good. The connection is given up after 8 s then, by either side."""
        cable = self.lay_cable()
        grace = ("--grace", "1")
        with self.another("tcp", options=grace, before=cable.at_server, host=cable.SERVER) as server, \
             self.started(before=cable.at_client) as subject:
            there, back = {"to": server.address}, {"to": "local"}
            usual = self.usual_time(subject, there, back)
            self.assertTrue(wait_for(lambda: len(server.workers()) == 1))
            before = {process: held_by(process) for process in (subject.process.pid, server.process.pid)}
            for moment in range(moments):
                ends = threading.Event()

                def cut(is_for_good=moment % 2 == 1, ends=ends):
                    cable.set("down")
                    ends.wait(30 if is_for_good else 1)
                    cable.set("up")

                cutter = threading.Timer(self.chance.uniform(0, usual), cut)
                cutter.start()
                answer = subject.ask("move", **there)
                if answer["ok"] and moment % 2 == 1:
                    ends.set()  # it is there, and would be lost
                if answer["ok"]:
                    self.count("it went there")
                    cutter.join()
                    self.move(subject, **back)
                else:
                    self.count("it stayed here")
                    ends.set()
                    cutter.join()
                self.assertEqual(subject.ask("describe")["at"], "local")
                self.assertTrue(wait_for(lambda: len(server.workers()) == 1, 20), "a session is left at the server")
                for process, held in before.items():
                    self.expect_nothing_more(process, held, "the program or the server")
            subject.end()

    def disk_is_full(self, moments):
        """The disk has room for a part of a checkpoint, each time another."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-full-")))
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=False,
                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", folder], check=True)
        with self.started() as subject:
            self.assertTrue(subject.ask("checkpoint", file=str(folder / "file"))["ok"])
            size = (folder / "file").stat().st_size
            (folder / "file").unlink()
            before = held_by(subject.process.pid)
            for _ in range(moments):
                room = self.chance.randrange(4096, int(1.05 * size))
                subprocess.run(["mount", "-o", f"remount,size={room}", folder], check=True)
                answer = subject.ask("checkpoint", file=str(folder / "file"))
                self.count("a checkpoint" if answer["ok"] else "none")
                if answer["ok"]:
                    (folder / "file").unlink()
                else:
                    self.assertIn("No space left", answer["error"])
                self.assertEqual(list(folder.iterdir()), [])
                self.expect_nothing_more(subject.process.pid, before, "the program")
            subject.end()


class Few(Faults):
    def test_destination_dies(self):
        self.destination_dies(4)

    def test_source_dies(self):
        self.source_dies(4)

    def test_link_is_cut(self):
        self.link_is_cut(2)

    def test_disk_is_full(self):
        self.disk_is_full(4)


class Many(Faults):
    def test_destination_dies(self):
        self.destination_dies(30)

    def test_source_dies(self):
        self.source_dies(30)

    def test_link_is_cut(self):
        self.link_is_cut(20)

    def test_disk_is_full(self):
        self.disk_is_full(20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
