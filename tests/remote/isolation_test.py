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

from serve_test import BUILD, GRUS, PROGRAMS, Server, through, wait_for  # noqa: E402

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
        vendors, self.work, self.caches = (self.folder / name for name in ("vendors", "work", "caches"))
        for place in (vendors, self.work):
            place.mkdir()
        (vendors / "fake.icd").write_text(f"{BUILD}/lib/tests/libfake_vendor.so\n")
        self.environment = os.environ | {"OCL_ICD_VENDORS": str(vendors), "GRUS_VENDORS": str(vendors),
                                         "FAKE_VENDOR": f"unified,runs={self.work}/intruder",
                                         "XDG_CACHE_HOME": str(self.caches)}

    def reached(self, *options):
        server = self.enterContext(Server(GRUS, "unix", None, self.environment, ["--shared-cache", "no", *options]))
        files = [str(place / "secret") for place in (self.caches, *self.caches.glob("grus/workers-*/*"))]
        self.assertEqual(len(files), 2)
        for file in files:
            pathlib.Path(file).write_text("of the victim")
        victim, = server.workers()
        program = [SWAPPED, "--buffers", "2", "--rounds", "0"]
        with subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", *program, "--wait"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment) as other:
            self.assertEqual(other.stdout.readline(), "ready\n")
            victims = {"worker": victim, "server": server.process.pid}
            intruder = self.work / "coming"
            intruder.write_text(INTRUDER.format(victims=victims, files=files, folder=self.work))
            intruder.chmod(0o700)
            intruder.rename(self.work / "intruder")
            done = through(server, *program, env=self.environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            other.communicate("\n", timeout=20)
        return json.loads((self.work / "reached").read_text())

    def test_a_worker_reaches_no_other_process_nor_its_caches(self):
        self.assertEqual(self.reached(), [])

    def test_the_sandbox_is_what_keeps_it_from_that(self):
        reached = self.reached("--no-sandbox")
        for what in ("signal worker", "signal server", "mem of worker", "mem of server", "fd/0 of worker",
                     f"write {self.caches}/secret"):
            self.assertIn(what, reached)


class CachesTest(unittest.TestCase):
    """Whether sessions find what drivers compiled for others."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-caches-")))
        self.caches = self.folder / "caches"
        self.environment = os.environ | {"XDG_CACHE_HOME": str(self.caches),
                                         "POCL_CACHE_DIR": str(self.caches / "pocl")}

    def serve(self, *options, kind="unix"):
        return self.enterContext(Server(GRUS, kind, None, self.environment, list(options)))

    def own_folders(self):
        return set(self.caches.glob("grus/workers-*/*"))

    def run_through(self, server):
        done = through(server, USUAL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_they_go_with_their_worker(self):
        server = self.serve("--shared-cache", "no")
        first, = self.own_folders()
        self.run_through(server)
        self.assertTrue(wait_for(lambda: len(self.own_folders()) == 1 and first not in self.own_folders(), 10))
        self.assertFalse((self.caches / "pocl").exists())
        for worker in server.workers():
            os.kill(worker, 9)
        self.assertTrue(wait_for(lambda: not self.own_folders(), 10))

    def test_nothing_is_left_of_a_server_that_was_killed(self):
        first = self.serve("--shared-cache", "no")
        left = self.own_folders()
        other = self.serve("--shared-cache", "no")
        self.assertTrue(left < self.own_folders())  # who lives keeps them
        first.process.kill()
        first.process.wait()
        self.assertTrue(left < self.own_folders())
        last = self.serve("--shared-cache", "no")
        self.assertFalse(left & self.own_folders())
        for server in (other, last):
            server.process.terminate()
            server.process.wait(20)
        self.assertEqual(list(self.caches.glob("grus/*workers*")), [])

    def test_they_are_shared_where_only_this_user_comes(self):
        server = self.serve()
        self.assertEqual(self.own_folders(), set())
        self.run_through(server)
        if "pocl" in os.environ.get("GRUS_VENDORS", ""):  # others cache where they like
            self.assertTrue(list((self.caches / "pocl").iterdir()))
        else:
            print("not PoCL, so what it caches isn't looked at", flush=True)
        for options in (("--user", "65534"), ("--listen", "tcp:127.0.0.1:0")):
            with Server(GRUS, "unix", None, self.environment, list(options)):
                self.assertEqual(len(self.own_folders()), 1)

    def test_yes_or_no(self):
        done = subprocess.run([GRUS, "serve", "--shared-cache", "maybe"], capture_output=True, text=True, timeout=20,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--shared-cache maybe: write yes or no", done.stderr)


class OtherUserTest(unittest.TestCase):
    """What a process that no other may look into finds of itself in /proc belongs to root."""

    @unittest.skipUnless(os.getuid() == 0, "only root can become another user")
    def test_drivers_work_for_other_users(self):
        with tempfile.TemporaryDirectory(prefix="grus-nobody-") as folder:
            os.chown(folder, NOBODY, NOBODY)
            become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            if subprocess.run([*become, "test", "-x", GRUS], check=False).returncode != 0:
                self.skipTest("other users can't start what was built")
            environment = os.environ | {"HOME": folder, "XDG_CACHE_HOME": f"{folder}/caches",
                                        "POCL_CACHE_DIR": f"{folder}/pocl"}
            with Server(GRUS, "tcp", None, environment, ["--shared-cache", "no"], before=become) as server:
                done = through(server, USUAL)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
