#!/usr/bin/python3
"""What a session can see of others' memory, processes and files: nothing. The device's memory is made to hold something
else than zeroes where it is the host's (MALLOC_PERTURB_), as a GPU's does."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

from serve_test import BUILD, GRUS, PROGRAMS, Server, through  # noqa: E402

CLEARED = PROGRAMS / "remote_cleared"
SWAPPED = PROGRAMS / "remote_swapped"
USUAL = PROGRAMS / "remote_usual"
NOBODY = 65534


class IsolationTest(unittest.TestCase):
    def setUp(self):
        if os.environ["GRUS_SANITIZE"]:
            self.skipTest("a sanitized libgrus.so can't be loaded into other programs")
        self.environment = os.environ | {"GRUS_MEMORY": "own", "MALLOC_PERTURB_": "90"}

    def start(self, kind="unix", *options):
        return self.enterContext(Server(GRUS, kind, None, self.environment, list(options)))

    def expect_cleared(self, server, *options):
        client = self.environment | {"MALLOC_PERTURB_": "0"}
        done = through(server, CLEARED, *map(str, options), env=client)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_memory_is_cleared_before_it_is_used(self):
        for kind in ("unix", "tcp"):
            with self.subTest(kind):
                self.expect_cleared(self.start(kind))

    def test_where_sessions_take_turns(self):
        self.expect_cleared(self.start("unix", "--shares"))

    def test_memory_of_who_was_killed_is_not_seen(self):
        server = self.start()
        before = set(server.workers())
        size = int(os.environ.get("GRUS_LEFT_BYTES", 256 << 20))
        with subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", CLEARED, "--leave", str(size)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment) as other:
            self.assertEqual(other.stdout.readline(), "left\n")
            for worker in before & set(server.workers()):  # the one that was ready when it came
                os.kill(worker, 9)
            other.kill()
        self.expect_cleared(server, "--search", size)


# What somebody does who has taken over a driver. Says what worked.
INTRUDER = """#!/usr/bin/python3
import json, os
reached = []

def attempt(name, what):
    try:
        what()
        reached.append(name)
    except OSError:
        pass

for who, pid in {victims}.items():
    attempt(f"signal {{who}}", lambda: os.kill(pid, 0))
    attempt(f"wait for {{who}}", lambda: os.pidfd_open(pid))
    for name in ("mem", "environ", *(f"fd/{{number}}" for number in range(64))):
        attempt(f"{{name}} of {{who}}", lambda: open(f"/proc/{{pid}}/{{name}}", "rb").read(0))
for name in {files}:
    attempt(f"read {{name}}", lambda: open(name, "rb").read(1))
    attempt(f"write {{name}}", lambda: open(name, "ab").write(b"poison"))
with open("{folder}/new", "w") as file:
    json.dump(reached, file)
os.rename("{folder}/new", "{folder}/reached")
"""


class NeighboursTest(unittest.TestCase):
    """What a worker can do to others, if its client finds a hole in the driver."""

    def setUp(self):
        if os.environ["GRUS_SANITIZE"]:
            self.skipTest("a sanitized libgrus.so can't be loaded into other programs")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-neighbours-")))
        vendors = self.folder / "vendors"
        vendors.mkdir()
        (vendors / "fake.icd").write_text(f"{BUILD}/lib/tests/libfake_vendor.so\n")
        self.environment = os.environ | {"OCL_ICD_VENDORS": str(vendors), "GRUS_VENDORS": str(vendors),
                                         "FAKE_VENDOR": f"unified,runs={self.folder}/intruder"}

    def reached(self, *options, files=()):
        server = self.enterContext(Server(GRUS, "unix", None, self.environment, list(options)))
        victim, = server.workers()
        with subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", SWAPPED, "--buffers", "2", "--rounds", "0", "--wait"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment) as other:
            self.assertEqual(other.stdout.readline(), "ready\n")
            victims = {"worker": victim, "server": server.process.pid}
            intruder = self.folder / "coming"
            intruder.write_text(INTRUDER.format(victims=victims, files=list(map(str, files)), folder=self.folder))
            intruder.chmod(0o700)
            intruder.rename(self.folder / "intruder")
            done = through(server, SWAPPED, "--buffers", "2", "--rounds", "0", env=self.environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            other.communicate("\n", timeout=20)
        return json.loads((self.folder / "reached").read_text())

    def test_a_worker_reaches_no_other_process(self):
        self.assertEqual(self.reached(), [])

    def test_the_sandbox_is_what_keeps_it_from_that(self):
        reached = self.reached("--no-sandbox")
        for what in ("signal worker", "signal server", "mem of worker", "mem of server", "fd/0 of worker"):
            self.assertIn(what, reached)


class OtherUserTest(unittest.TestCase):
    """What a process that no other may look into finds of itself in /proc belongs to root."""

    @unittest.skipUnless(os.getuid() == 0, "only root can become another user")
    def test_drivers_work_for_other_users(self):
        with tempfile.TemporaryDirectory(prefix="grus-nobody-") as folder:
            os.chown(folder, NOBODY, NOBODY)
            become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            if subprocess.run([*become, "test", "-x", GRUS], check=False).returncode != 0:
                self.skipTest("other users can't start what was built")
            environment = os.environ | {"HOME": folder, "XDG_CACHE_HOME": f"{folder}/caches", "POCL_CACHE_DIR": f"{folder}/pocl"}
            with Server(GRUS, "tcp", None, environment, before=become) as server:
                done = through(server, USUAL)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
