#!/usr/bin/python3
"""Programs that are suspended, resumed, and put back to checkpoints: their results stay right."""

import contextlib
import json
import os
import pathlib
import random
import re
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
from subjects import BUILD, GRUS, SECONDS, TestCase, wait_for  # noqa: E402


@contextlib.contextmanager
def small_disk(folder, size):
    """A folder there, in which there is room for so much."""
    full = folder / "full"
    full.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", full], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        raise unittest.SkipTest("no file system can be mounted here")
    try:
        yield full
    finally:
        subprocess.run(["umount", full], check=True)


class SuspendTest(TestCase):
    def test_builds_that_are_under_way(self):
        """They wait for it to be resumed, and what is done again then, the next suspend waits for."""
        subject = self.subject("rebuild", environment={"POCL_KERNEL_CACHE": "0"})
        for _ in range(3):
            for command in ("suspend", "resume"):
                answer = subject.ask(command)
                self.assertTrue(answer["ok"], answer)
        self.assertGreaterEqual(subject.end()["rounds"], 2)

    def test_suspended_and_resumed(self):
        server = self.server()
        subject = self.subject("busy")
        for where in ({}, {"to": server.address}, {"to": "local", "device": "0:1"}):
            self.assertTrue(subject.ask("suspend")["ok"])
            self.assertEqual(subject.ask("describe")["at"], "suspended")
            self.assertIn("suspended already", self.refused(subject, "suspend"))
            time.sleep(0.2)
            answer = subject.ask("resume", **where)
            self.assertTrue(answer["ok"], answer)
            self.assertEqual(subject.ask("describe")["at"], where.get("to", "local"))
        self.assertIn("isn't suspended", self.refused(subject, "resume"))
        subject.end()

    def test_suspended_with_the_device_comparing(self):
        """More than its lanes hold at a time, so that they are used again while they are read."""
        subject = self.subject("busy", "20", "16", "4")
        for options in ({}, {}, {"rounds": 0}):
            answer = subject.ask("suspend", fingerprint="device", **options)
            self.assertTrue(answer["ok"], answer)
            answer = subject.ask("resume")
            self.assertTrue(answer["ok"], answer)
        subject.end()

    def test_enqueue_goes_on_while_suspended(self):
        subject = self.subject("enqueue")
        self.assertTrue(subject.ask("suspend")["ok"])
        time.sleep(1)
        self.assertTrue(subject.ask("resume")["ok"])
        told = subject.end()
        self.assertGreater(told["rounds"], 500)

    def test_objects_can_be_made_while_suspended(self):
        subject = self.subject("create")
        for _ in range(3):
            self.assertTrue(subject.ask("suspend")["ok"])
            time.sleep(0.1)
            self.assertTrue(subject.ask("resume")["ok"])
            time.sleep(0.1)
        subject.end()

    def test_drivers_are_unloaded_while_suspended(self):
        """With a driver that can be: its library is gone, and the program hardly notices."""
        library = str(BUILD / "lib/tests/libfake_vendor.so")
        # What the driver itself leaves behind has no name any more when leaks are looked for.
        sanitizer = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        subject = self.subject("count", options=["--vendors", library], environment=sanitizer)
        maps = pathlib.Path(f"/proc/{subject.process.pid}/maps")
        tasks = pathlib.Path(f"/proc/{subject.process.pid}/task")

        def threads():  # the callbacks' starts when there is one
            names = []
            for task in tasks.iterdir():
                with contextlib.suppress(OSError):  # it ends meanwhile
                    names.append((task / "comm").read_text())
            return [name for name in names if name != "grus-callbacks\n"]

        added = 0
        for _ in range(3):
            self.assertIn(library, maps.read_text())
            before = len(threads())
            answer = subject.ask("suspend", unload=True, fingerprint="xxh3")  # its device runs none of Grus's kernels
            self.assertTrue(answer["ok"], answer)
            self.assertEqual(answer["stays_loaded"], [])
            self.assertNotIn(library, maps.read_text())
            self.assertTrue(wait_for(lambda: len(threads()) < before), "the driver's thread is gone")
            for line in ("add", "ask", "add", "ask"):
                self.assertEqual(subject.say(line), "done")
            added += 2
            self.assertNotIn(library, maps.read_text())
            answer = subject.ask("resume")
            self.assertTrue(answer["ok"], answer)
            self.assertEqual(subject.say("look"), str(added))
        self.assertTrue(subject.ask("suspend", unload=True)["ok"])
        self.assertEqual(subject.say("add"), "done")
        subject.process.communicate(timeout=SECONDS)
        self.assertEqual(subject.process.returncode, 0)

    def test_driver_that_cannot_be_unloaded(self):
        subject = self.subject("busy")
        answer = subject.ask("suspend", unload=True)
        self.assertTrue(answer["ok"], answer)
        self.assertRegex(answer["stays_loaded"][0], "libpocl.*can't be unloaded")
        self.assertTrue(subject.ask("resume")["ok"])
        subject.end()

    def test_suspended_at_a_server(self):
        server = self.server()
        subject = self.subject("clock", options=["--gpu", server.address])
        for _ in range(2):
            self.assertTrue(subject.ask("suspend")["ok"])
            self.assertTrue(subject.ask("resume")["ok"])
            self.assertEqual(subject.ask("describe")["at"], server.address)
        subject.end()


def resident(subject):
    """How much memory the program has."""
    status = pathlib.Path(f"/proc/{subject.process.pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])


class FileTest(TestCase):
    """Programs that are suspended into a file."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-suspended-")))
        self.file = self.folder / "file"

    def suspend(self, subject, **how):
        answer = subject.ask("suspend", file=str(self.file), **how)
        self.assertTrue(answer["ok"], answer)
        return answer

    def resume(self, subject, **where):
        answer = subject.ask("resume", **where)
        self.assertTrue(answer["ok"], answer)
        self.assertEqual(list(self.folder.iterdir()), [])

    @unittest.skipIf("address" in os.environ.get("GRUS_SANITIZE", ""), "the sanitizer keeps memory that was freed")
    def test_memory_is_in_the_file(self):
        subject = self.subject("busy", 16, 4, 4)
        for was_here, where in ((True, {}), (True, {"to": self.server().address}), (False, {"to": "local"})):
            before = resident(subject)
            self.assertEqual(self.suspend(subject)["plan"]["destination"], str(self.file))
            if was_here:  # what the objects hold is 64 MiB, and copying takes some
                self.assertTrue(wait_for(lambda most=before - (32 << 20): resident(subject) < most), resident(subject))
            self.assertGreaterEqual(self.file.stat().st_size, 64 << 20)
            self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
            self.resume(subject, **where)
        subject.end()

    def test_all_kinds_of_objects(self):
        for name in ("create", "image", "lent", "mapped"):
            with self.subTest(name):
                subject = self.subject(name)
                for how in ({}, {"rounds": 0}):
                    self.suspend(subject, **how)
                    self.resume(subject)
                subject.end()

    def test_file_that_is_there_already(self):
        self.file.write_text("precious")
        subject = self.subject("busy")
        self.assertIn("File exists", self.refused(subject, "suspend", file=str(self.file)))
        self.assertEqual(self.file.read_text(), "precious")
        self.assertIn("No such file", self.refused(subject, "suspend", file=str(self.folder / "nowhere" / "file")))
        self.assertTrue(subject.ask("suspend", file=str(self.folder / "other"), dry_run=True)["ok"])
        self.assertEqual(list(self.folder.iterdir()), [self.file])
        subject.end()

    def test_file_that_is_cut_short(self):
        """It stays suspended, and nobody is told wrong data."""
        subject = self.subject("busy")
        self.suspend(subject)
        os.truncate(self.file, 1 << 20)
        self.assertIn(str(self.file), self.refused(subject, "resume"))
        self.assertEqual(subject.ask("describe")["at"], "suspended")

    def test_program_that_ends_meanwhile(self):
        subject = self.subject("count")
        self.suspend(subject)
        subject.process.communicate(timeout=SECONDS)
        self.assertEqual(subject.process.returncode, 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_full_disk(self):
        full = self.enterContext(small_disk(self.folder, "16m"))
        subject = self.subject("busy", 8, 4, 1)
        self.assertIn("No space left", self.refused(subject, "suspend", file=str(full / "file")))
        self.assertEqual(list(full.iterdir()), [])
        self.assertEqual(subject.ask("describe")["at"], "local")
        subject.end()


class CheckpointTest(TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-checkpoint-")))
        self.file = str(self.folder / "file")
        self.program = self.subject("state")

    def checkpoint(self):
        answer = self.program.ask("checkpoint", file=self.file)
        self.assertTrue(answer["ok"], answer)

    def test_state_comes_back(self):
        for expected in ("1", "2", "3"):
            self.assertEqual(self.program.say("add"), expected)
        self.checkpoint()
        self.assertEqual(self.program.say("add"), "4")
        self.assertTrue(self.program.ask("restore", file=self.file)["ok"])
        self.assertEqual(self.program.say("look"), "3")
        self.move(self.program, to=self.server().address)  # it belongs to the session, wherever that is
        self.assertEqual(self.program.say("add"), "4")
        self.assertTrue(self.program.ask("restore", file=self.file)["ok"])
        self.assertEqual(self.program.say("look"), "3")

    def test_damaged_files_are_refused(self):
        self.program.say("add")
        self.checkpoint()
        whole = pathlib.Path(self.file).read_bytes()
        chance = random.Random(1)
        for _ in range(20):
            place = chance.randrange(len(whole))
            altered = bytearray(whole)
            altered[place] ^= 1 << chance.randrange(8)
            pathlib.Path(self.file).write_bytes(altered)
            self.refused(self.program, "restore", file=self.file)
        for size in (0, 7, 100, len(whole) - 1):
            pathlib.Path(self.file).write_bytes(whole[:size])
            self.refused(self.program, "restore", file=self.file)
        pathlib.Path(self.file).write_bytes(whole + b"more")
        self.refused(self.program, "restore", file=self.file)
        self.assertEqual(self.program.say("add"), "2")

    def test_objects_made_or_freed_since(self):
        self.checkpoint()
        self.program.say("make")
        self.assertIn("made or freed", self.refused(self.program, "restore", file=self.file))
        self.checkpoint()
        self.program.say("free")
        self.assertIn("made or freed", self.refused(self.program, "restore", file=self.file))
        self.assertEqual(self.program.say("add"), "1")

    def test_unknown_version(self):
        self.checkpoint()
        altered = bytearray(pathlib.Path(self.file).read_bytes())
        altered[8] = 99
        pathlib.Path(self.file).write_bytes(altered)
        self.assertIn("its version is 99", self.refused(self.program, "restore", file=self.file))

    def test_restored_while_suspended(self):
        self.program.say("add")
        self.checkpoint()
        for how in ({}, {"file": str(self.folder / "suspended")}):
            self.assertEqual(self.program.say("add"), "2")
            self.assertTrue(self.program.ask("suspend", **how)["ok"])
            answer = self.program.ask("restore", file=self.file)
            self.assertTrue(answer["ok"], answer)
            self.assertEqual(self.program.ask("describe")["at"], "suspended")
            self.assertTrue(self.program.ask("resume")["ok"])
            self.assertEqual(self.program.say("look"), "1")

    def test_commands_tell_what_they_do(self):
        trace = self.folder / "trace"

        def grus(*arguments):
            done = subprocess.run([GRUS, *map(str, arguments), "--trace", trace], capture_output=True, text=True,
                                  timeout=SECONDS, check=False, env=self.program.environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout, {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}

        pid = self.program.process.pid
        self.assertIn("write", grus("checkpoint", pid, "-o", self.file)[1])
        said, phases = grus("restore", self.file, pid, "--max-stop", 10000)
        self.assertRegex(said, r"(?s)write back.*256.0 KiB.*stop: [\d.]+ ms")
        self.assertEqual(phases, {"read", "hold", "write back"})
        grus("suspend", pid, "-o", self.folder / "suspended")
        self.assertIn("can move to", grus("resume", pid, "--dry-run")[0])
        self.assertEqual(self.program.ask("describe")["at"], "suspended")
        options = ["--rounds", 1, "--bandwidth", "1GB", "--max-stop", 60000, "--no-overlap", "--json"]
        said, phases = grus("resume", pid, *options)
        self.assertEqual(json.loads(said)[0]["pid"], pid)
        self.assertTrue({"first copy", "switch"} <= phases, phases)
        self.assertEqual(self.program.say("add"), "1")

    def test_restore_tells_of_its_progress(self):
        self.checkpoint()
        told = list(self.program.session.watch(command="restore", file=self.file))
        self.assertEqual([one["phase"] for one in told[:-1] if one["phase"] != "read"][:2], ["hold", "write back"])
        self.assertTrue(told[-1]["ok"], told)
        self.assertEqual(told[-1]["sent_stopped"], told[-1]["plan"]["bytes"])

    def test_file_of_another_session_is_refused(self):
        self.checkpoint()
        other = self.subject("state")
        self.assertIn("another session", self.refused(other, "restore", file=self.file))

    def test_nothing_else_is_overwritten(self):
        file = pathlib.Path(self.file)
        other = self.folder / "other"
        other.write_text("precious")
        part = self.folder / "file.part"
        part.write_text("precious")
        for make in (lambda: file.write_text("precious"), file.mkdir, lambda: file.symlink_to(other), lambda: os.mkfifo(file)):
            make()
            self.assertIn("isn't overwritten", self.refused(self.program, "checkpoint", file=self.file))
            file.rmdir() if file.is_dir() else file.unlink()
        for _ in range(2):
            self.checkpoint()
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertEqual({one.name for one in self.folder.iterdir()}, {"file", "file.part", "other"})
        self.assertEqual((other.read_text(), part.read_text()), ("precious", "precious"))

    def test_full_disk_leaves_no_file(self):
        full = self.enterContext(small_disk(self.folder, "64k"))
        self.program.say("add")
        self.assertIn("No space left", self.refused(self.program, "checkpoint", file=str(full / "file")))
        self.assertEqual(list(full.iterdir()), [])
        self.assertEqual(self.program.say("add"), "2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
