#!/usr/bin/python3
"""Programs that are moved while they run, suspended, resumed, and put back to checkpoints: their results stay right."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
BUILD = pathlib.Path(os.environ["GRUS_BUILD"])
SOURCE = pathlib.Path(os.environ["GRUS_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench"))

from moving import Session, run_and_move  # noqa: E402
from serving import Server, wait_for  # noqa: E402

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

    def round_trip(self, *subject, times=3):
        subject = self.subject(*subject)
        for place in self.places() * times:
            self.move(subject, **place)
            time.sleep(0.02)
        self.assertGreater(subject.end()["rounds"], times)


class MovesTest(TestCase):
    def test_busy_program(self):
        self.round_trip("busy")

    def test_kernel_that_casts_const_away(self):
        self.round_trip("const")

    def test_region_written_while_it_is_mapped(self):
        self.round_trip("mapped")

    def test_callbacks_that_take_long(self):
        self.round_trip("callback")

    def test_objects_made_and_freed_all_the_time(self):
        self.round_trip("create", times=2)

    def test_nothing_is_built_in_the_stop(self):
        subject = self.subject("create")
        for place in self.places() * 5:
            self.assertEqual(self.move(subject, **place)["built_stopped"], 0)
        subject.end()

    def test_image_of_which_a_part_is_mapped(self):
        self.round_trip("image")

    def test_times_of_events_go_on(self):
        self.round_trip("clock")

    def test_pages_that_are_changed_and_changed_back(self):
        self.round_trip("flip")

    def test_swapped_blocks(self):
        """gMig's fingerprint doesn't see them; all others do."""
        server = self.server()
        # Slow enough for the program to swap some after the first copy.
        order = {"to": server.address, "bytes_per_second": 32 << 20}
        for how in ({}, {"fingerprint": "xxh3", "sample": 1}, {"fingerprint": "device"}):
            with self.subTest(**how):
                subject = self.subject("swap")
                self.assertGreater(self.move(subject, **order, **how)["sent_stopped"], 4 << 20)
                subject.end()
        subject = self.subject("swap")
        # But for pages that were copied amid a swap.
        self.assertLess(self.move(subject, **order, fingerprint="xor256")["sent_stopped"], 1 << 20)
        with self.assertRaisesRegex(AssertionError, "a block isn't where it was put"):
            subject.end()

    def test_samples(self):
        """They tell of pages that have changed where they are taken, and leave the rest to fingerprints."""
        server = self.server()
        for at in ("head", "tail", "uniform"):
            subject = self.subject("busy")
            moved = self.move(subject, to=server.address, fingerprint="xxh3", sample=4, sample_at=at)
            last = next(phase for phase in moved["phases"] if phase["phase"] == "last copy")
            self.assertEqual(last["read"], 4 << 20)
            self.assertEqual(last["sampled"], last["sent"])  # all words of these pages change
            self.assertGreater(last["sent"], 0)
            subject.end()
        subject = self.subject("busy")
        self.assertIn("can't be compared", self.refused(subject, to=server.address, fingerprint="crc32"))
        self.assertIn("can't be compared", self.refused(subject, to=server.address, sample=5))
        subject.end()

    def test_program_that_starts_at_a_server(self):
        first, second = self.server(), self.server("tcp")
        subject = self.subject("busy", options=["--gpu", first.address])
        self.move(subject, to=second.address)
        self.assertTrue(wait_for(lambda: len(first.workers()) == 1), "the session has left; one is ready")
        self.move(subject, to="local")
        self.move(subject, to=first.address)
        subject.end()

    def test_memory_of_its_own(self):
        """As if the devices had memory of their own: mappings are copies there."""
        for name in ("mapped", "busy"):
            with self.subTest(name):
                subject = self.subject(name, environment={"GRUS_MEMORY": "own"})
                server = self.server(GRUS_MEMORY="own")
                for place in [{"to": "local", "device": "0:1"}, {"to": server.address}, {"to": "local"}] * 2:
                    self.move(subject, **place)
                subject.end()

    def test_program_scope_variable_is_refused(self):
        subject = self.subject("scope")
        self.assertIn("program-scope", self.refused(subject, to="local"))
        self.assertIn("program-scope", self.refused(subject, "suspend"))
        subject.end()

    def test_reasons_against_a_move(self):
        subject = self.subject("busy")
        self.assertIn("no device like", self.refused(subject, to="local", device="a device that isn't there"))
        self.assertIn("grus serve", self.refused(subject, to="unix:/nowhere/at/all"))
        small = self.server(POCL_MEMORY_LIMIT="1")
        self.assertIn("CL_DEVICE_MAX_MEM_ALLOC_SIZE", self.refused(subject, to=small.address))
        self.assertTrue(subject.ask("move", to="local", device="0:1", dry_run=True)["ok"])
        subject.end()

    def test_only_changed_pages_are_sent_in_the_stop(self):
        subject = self.subject("busy", 16, 4, 1)
        moved = self.move(subject, to=self.server().address)
        self.assertEqual(moved["plan"]["bytes"], 64 << 20)
        self.assertLessEqual(moved["sent_stopped"], 1 << 20)
        self.assertGreaterEqual(moved["sent_running"], 64 << 20)
        # Commands that are held back meanwhile change nothing.
        self.assertEqual([phase["read"] for phase in moved["phases"] if phase["phase"] == "switch"], [0])
        subject.end()

    def test_nothing_is_copied_between_devices_that_share_the_memory(self):
        subject = self.subject("busy", 16, 4, 1)
        moved = self.move(subject, to="local", device="0:1")
        self.assertEqual(moved["sent_running"] + moved["sent_stopped"], 0)
        subject.end()

    def test_other_drivers(self):
        """PoCL, rusticl, Oclgrind and back, in one run."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-vendors-")))
        for name, library in (("pocl", "libpocl.so.2"), ("rusticl", "libRusticlOpenCL.so.1"),
                              ("oclgrind", "/usr/lib/oclgrind/liboclgrind-rt-icd.so")):
            (folder / f"{name}.icd").write_text(library + "\n")
        if os.environ.get("GRUS_SANITIZE"):
            self.skipTest("these drivers don't run under a sanitizer")
        environment = {"RUSTICL_ENABLE": "llvmpipe", "POCL_MEMORY_LIMIT": "1", "GRUS_VENDORS": str(folder),
                       "SUBJECT_PLATFORM": "Portable"}
        profile = folder / "profile"
        made = subprocess.run([GRUS, "profile", "make", "local", "-o", profile], env=ENVIRONMENT | environment,
                              capture_output=True, text=True, check=True)
        self.assertRegex(made.stderr, "(?s)(rusticl|Portable|Oclgrind).*(rusticl|Portable|Oclgrind)")
        options = {"options": ["--vendors", str(folder), "--profile", str(profile)], "environment": environment}
        busy = self.subject("busy", 2, 1, 1, **options)
        for name in ("rusticl", "Portable") * 3:
            self.move(busy, to="local", device=name)
            time.sleep(0.1)
        busy.end()
        # Oclgrind lets only one thread at a time do anything, so the program waits for input meanwhile.
        state = self.subject("state", **options)
        for number, name in enumerate(("rusticl", "oclgrind", "Portable", "oclgrind", "rusticl", "Portable"), 1):
            self.move(state, to="local", device=name, rounds=0)
            self.assertEqual(state.say("add"), str(number), name)


class MemoryTest(TestCase):
    def test_every_way_to_write(self):
        self.round_trip("ways")

    def test_pages_watched_by_the_system(self):
        """Only what was written is looked at, and nothing that was written is missed."""
        server = self.server()
        slow = {"bytes_per_second": 64 << 20}  # so that the program writes meanwhile
        for how, least, most in (("system", 1, 4 << 20), ("xxh3", 16 << 20, 16 << 20)):
            subject = self.subject("ways")
            for _ in range(3):
                moved = self.move(subject, to=server.address, fingerprint=how, **slow)
                read = sum(phase["read"] for phase in moved["phases"] if phase["phase"] == "last copy")
                self.assertTrue(least <= read <= most, moved)
                self.assertEqual(moved["plan"]["notes"], [])
                self.move(subject, to="local", fingerprint="xxh3")
            subject.end()

    def test_pages_that_cannot_be_watched(self):
        server = self.server()
        subject = self.subject("ways", options=["--gpu", server.address])
        moved = self.move(subject, to="local", fingerprint="system")
        self.assertRegex(moved["plan"]["notes"][0], "fingerprinted instead")
        subject.end()
        subject = self.subject("ways", before=[SOURCE / "tests/moves/without_userfaultfd"])
        moved = self.move(subject, to=server.address, fingerprint="system")
        self.assertRegex(moved["plan"]["notes"][0], "doesn't tell which pages are written.*fingerprinted instead")
        subject.end()

    def test_memory_of_the_programs_own(self):
        self.round_trip("lent", times=6)

    def test_memory_of_the_programs_own_and_of_the_devices(self):
        subject = self.subject("lent", environment={"GRUS_MEMORY": "own"})
        server = self.server(GRUS_MEMORY="own")
        for place in [{"to": server.address}, {"to": "local", "device": "0:1"}, {"to": "local", "device": "0:0"}] * 3:
            self.move(subject, **place)
            self.assertTrue(subject.ask("suspend")["ok"])
            self.assertTrue(subject.ask("resume", **place)["ok"])
        subject.end()

    def test_memory_that_is_given_back_when_its_buffer_is_released(self):
        subject = self.subject("borrowed")
        for place in self.places() * 6:
            self.move(subject, **place, bytes_per_second=256 << 20)
        subject.end()


class ProfileTest(TestCase):
    def profile(self, *places, environment=None):
        """A file with what the devices there have in common."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-profile-")))
        subprocess.run([GRUS, "profile", "make", *places, "-o", folder / "profile"], env=ENVIRONMENT | (environment or {}),
                       capture_output=True, check=True)
        return folder / "profile"

    def test_native_kernels_need_a_profile(self):
        """A program that runs them can't go where there are none, unless it was told so from the start."""
        server = self.server()
        subject = self.subject("native")
        self.assertIn("CL_DEVICE_EXECUTION_CAPABILITIES", self.refused(subject, to=server.address))
        self.move(subject, to="local", device="0:1")
        self.assertTrue(subject.end()["native"])
        subject = self.subject("native", options=["--profile", self.profile("local", server.address)])
        self.move(subject, to=server.address)
        self.assertFalse(subject.end()["native"])

    def test_image_formats_and_language_of_a_profile(self):
        """What the program was told of them must be there."""
        profile = self.profile("local")
        lines = profile.read_text().splitlines()
        two = [line if not line.startswith("IMAGE2D_FORMATS_READ_ONLY") else " ".join(line.split()[:3]) for line in lines]
        two = [line if not line.startswith("CL_DEVICE_OPENCL_C_ALL_VERSIONS") else line.split()[0] + " 1.0 1.1"
               for line in two]
        self.assertNotEqual(two, lines)
        profile.write_text("\n".join(two) + "\n")
        subject = self.subject("formats", options=["--profile", profile])
        self.move(subject, to=self.server().address)
        self.assertEqual(subject.end(), {"formats": 2, "version": "OpenCL C 1.1"})

    def test_image_formats_that_another_driver_lacks(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-vendors-")))
        (folder / "pocl.icd").write_text("libpocl.so.2\n")
        (folder / "rusticl.icd").write_text("libRusticlOpenCL.so.1\n")
        if os.environ.get("GRUS_SANITIZE"):
            self.skipTest("these drivers don't run under a sanitizer")
        environment = {"RUSTICL_ENABLE": "llvmpipe", "POCL_MEMORY_LIMIT": "1", "GRUS_VENDORS": str(folder),
                       "SUBJECT_PLATFORM": "Portable"}
        options = ["--vendors", str(folder)]
        subject = self.subject("formats", options=options, environment=environment)
        self.assertRegex(self.refused(subject, to="local", device="rusticl"),
                         r"IMAGE2D_FORMATS_READ_ONLY A/FLOAT is missing there")
        every = subject.end()["formats"]
        options += ["--profile", self.profile("local", environment=environment)]
        subject = self.subject("formats", options=options, environment=environment)
        self.move(subject, to="local", device="rusticl")
        self.assertLess(subject.end()["formats"], every)


class SuspendTest(TestCase):
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
            return [task for task in tasks.iterdir() if (task / "comm").read_text() != "grus-callbacks\n"]

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

    def test_file_of_another_session_is_refused(self):
        self.checkpoint()
        other = self.subject("state")
        self.assertIn("another session", self.refused(other, "restore", file=self.file))

    def test_full_disk_leaves_no_file(self):
        full = self.folder / "full"
        full.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full], check=False,
                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", full], check=True)
        self.program.say("add")
        self.assertIn("No space left", self.refused(self.program, "checkpoint", file=str(full / "file")))
        self.assertEqual(list(full.iterdir()), [])
        self.assertEqual(self.program.say("add"), "2")


class FailuresTest(TestCase):
    def test_destination_that_is_killed(self):
        """At random moments: the program goes on, here or there, until a server that it is at dies."""
        chance = random.Random(2)
        subject = self.subject("busy", 16, 4, 4)
        for _ in range(8):
            with Server(GRUS, "unix", None, ENVIRONMENT, errors=subprocess.DEVNULL) as server:
                workers = server.workers()
                killer = threading.Timer(chance.uniform(0, 0.15), lambda: [os.kill(pid, signal.SIGKILL)
                                                                           for pid in workers])
                killer.start()
                answer = subject.ask("move", to=server.address)
                if answer["ok"]:
                    back = subject.ask("move", to="local")
                    killer.join()
                    if not back["ok"]:
                        return  # it was there when the server died: nothing can save it
                killer.join()
        subject.end()

    def test_whoever_asked_goes_away(self):
        subject = self.subject("busy", 32, 8, 8)
        server = self.server()
        for _ in range(5):
            command = subprocess.Popen([GRUS, "move", str(subject.process.pid), "--to", server.address,
                                        "--bandwidth", "100MB"], env=subject.environment, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(0.2)
            command.terminate()
            command.wait()
        self.assertEqual(subject.ask("describe")["at"], "local")
        subject.end()

    def test_stop_that_would_be_too_long(self):
        subject = self.subject("busy", 2, 64, 64)
        said = self.refused(subject, to=self.server().address, max_stop_ms=1)
        self.assertRegex(said, "stop|time allowed")
        subject.end()


class CommandTest(TestCase):
    def grus(self, subject, *arguments):
        return subprocess.run([GRUS, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, check=False,
                              env=subject.environment)

    def test_commands(self):
        subject = self.subject("busy", options=["--name", "job"])
        listed = json.loads(self.grus(subject, "ps", "--json", "--interval", "0.1").stdout)
        self.assertEqual([one["name"] for one in listed[0]["sessions"]], ["job"])
        self.assertIn("can be moved", self.grus(subject, "why", "job").stdout)
        trace = pathlib.Path(subject.folder.name) / "trace"
        moved = self.grus(subject, "move", "job", "--to", "0:1", "--trace", trace)
        self.assertEqual(moved.returncode, 0, moved.stderr)
        self.assertRegex(moved.stdout, r"stop: [\d.]+ ms")
        self.assertIn("switch", {event["name"] for event in json.loads(trace.read_text())["traceEvents"]})
        compared = ["--fingerprint", "xxh3", "--sample", "2", "--sample-at", "uniform"]
        for arguments in (["suspend", "job", *compared], ["resume", "job"], ["move", "all", "--to", "local", "--json"]):
            done = self.grus(subject, *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
        for wrong in (["--fingerprint", "crc32"], ["--sample", "3"], ["--sample-at", "middle"]):
            self.assertEqual(self.grus(subject, "move", "job", "--to", "local", *wrong).returncode, 2)
        self.assertRegex(self.grus(subject, "move", "--help").stdout, r"(?s)WARNING:\s+xor256\s+misses")
        nobody = self.grus(subject, "move", "nobody", "--to", "local")
        self.assertEqual(nobody.returncode, 1)
        self.assertIn("grus ps", nobody.stderr)
        subject.end()


    def test_drain(self):
        first, second = self.server(), self.server("tcp")
        here = self.subject("busy")
        with_it = {"XDG_RUNTIME_DIR": here.folder.name}
        at_server = self.subject("busy", options=["--gpu", first.address], environment=with_it)
        said = self.grus(here, "drain", first.address, "--to", second.address, "--dry-run")
        self.assertEqual((said.returncode, said.stdout.count("can move to")), (0, 1), said.stdout + said.stderr)
        self.assertEqual(at_server.ask("describe")["at"], first.address)
        said = self.grus(here, "drain", first.address, "--to", second.address, "--json")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual([one["pid"] for one in json.loads(said.stdout)], [at_server.process.pid])
        self.assertEqual(at_server.ask("describe")["at"], second.address)
        self.assertIn("nothing of yours", self.grus(here, "drain", first.address, "--to", "local").stdout)
        for leaves, comes in (("0:0", "0:1"), ("0:1", "0:0")):
            said = self.grus(here, "drain", leaves, "--to", "local")
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual([place["number"] for place in here.ask("describe")["places"]], [comes])
        said = self.grus(here, "drain", "Portable", "--to", "local")  # which both of its devices are
        self.assertEqual(said.returncode, 1, said.stdout)
        self.assertIn("no other device", said.stderr)
        self.assertEqual(self.grus(here, "drain", first.address, "--to", first.address).returncode, 2)
        scoped = self.subject("scope", options=["--gpu", second.address], environment=with_it)
        said = self.grus(here, "drain", second.address, "--to", first.address, "--json")
        self.assertEqual(said.returncode, 1, said.stdout)
        self.assertEqual({one["pid"]: one["ok"] for one in json.loads(said.stdout)},
                         {at_server.process.pid: True, scoped.process.pid: False})
        why = json.loads(self.grus(here, "why", scoped.process.pid, "--json").stdout)
        self.assertIn("program-scope", why[0]["immovable"][0])
        for subject in (at_server, here, scoped):
            subject.end()


class LongMovesTest(TestCase):
    def test_all_workloads(self):
        """Each gives the checksum that it gives unmoved, and finds its own results right."""
        places = self.places()
        for program in sorted(WORKLOADS.iterdir()):
            with self.subTest(program.name):
                command = [program, "--quick", "--iterations", "400" if program.name != "awkward" else "40"]
                still = subprocess.run([GRUS, "run", "--", *map(str, command)], env=ENVIRONMENT, capture_output=True,
                                       text=True, timeout=SECONDS, check=False)
                moved = run_and_move(GRUS, command, places, ENVIRONMENT, timeout=SECONDS)
                self.assertEqual(moved.status, 0, moved.errors)
                self.assertEqual(moved.refused, [])
                self.assertEqual(re.findall("checksum.*", moved.output), re.findall("checksum.*", still.stdout))

    def test_awkward_moved_a_thousand_times(self):
        moves = 0
        while moves < 1000:
            moved = run_and_move(GRUS, [WORKLOADS / "awkward", "--quick", "--seconds", "20"], self.places(), ENVIRONMENT,
                                 timeout=SECONDS)
            self.assertEqual(moved.status, 0, moved.errors)
            self.assertEqual(moved.refused, [])
            moves += len(moved.done)


if __name__ == "__main__":
    if sys.argv[1:] == ["MovesTest"]:  # all the fast ones
        sys.argv[1:] = ["MovesTest", "SuspendTest", "CheckpointTest", "FailuresTest", "CommandTest"]
    unittest.main(verbosity=2)
