#!/usr/bin/python3
"""Programs that are moved while they run, by every kind of move: their results stay right."""

import contextlib
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
from moving import run_and_move  # noqa: E402
from subjects import BUILD, ENVIRONMENT, GRUS, SECONDS, SLOWER, WORKLOADS, Server, TestCase, wait_for  # noqa: E402


class MovesTest(TestCase):
    def test_busy_program(self):
        self.round_trip("busy")

    def test_kernel_that_casts_const_away(self):
        self.round_trip("const")

    def test_region_written_while_it_is_mapped(self):
        self.round_trip("mapped")

    def test_sub_device(self):
        self.round_trip("busy", environment={"SUBJECT_SUB_DEVICE": "1"})

    def test_region_in_use_after_its_unmap(self):
        self.round_trip("unmapped")

    def test_callbacks_that_take_long(self):
        self.round_trip("callback")

    def test_objects_made_and_freed_all_the_time(self):
        self.round_trip("create", times=2)

    def test_nothing_is_built_in_the_stop(self):
        subject = self.subject("create")
        for place in self.places() * 5:
            self.assertEqual(self.move(subject, **place)["built_stopped"], 0)
        subject.end()

    def test_builds_that_take_longer_than_it_stays_anywhere(self):
        """Each is done again once, and then the next move waits for it."""
        subject = self.subject("rebuild", environment={"POCL_KERNEL_CACHE": "0"})
        for turn in range(6):
            self.move(subject, to="local", device=f"0:{1 - turn % 2}")
        self.assertGreaterEqual(subject.end()["rounds"], 3)

    def test_image_of_which_a_part_is_mapped(self):
        self.round_trip("image")

    def test_images_of_every_type(self):
        self.round_trip("images")
        subject = self.subject("images", environment={"GRUS_MEMORY": "own"})
        server = self.server(GRUS_MEMORY="own")
        for place in [{"to": server.address}, {"to": "local", "device": "0:1"}, {"to": "local", "device": "0:0"}] * 2:
            self.move(subject, **place)
            self.assertTrue(subject.ask("suspend")["ok"])
            self.assertTrue(subject.ask("resume", **place)["ok"])
        subject.end()

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
            self.assertGreater(last["sent"], 0)
            # All words of these pages change. Slow copies may be amid a kernel, with only a part of a page's words changed.
            least = last["sent"] if SLOWER == 1 else last["sent"] // 2
            self.assertGreaterEqual(last["sampled"], least)
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
        said = self.refused(subject, to=small.address)
        self.assertIn("CL_DEVICE_MAX_MEM_ALLOC_SIZE", said)
        self.assertNotIn("CL_DEVICE_GLOBAL_MEM_SIZE", said)  # what is in use would fit
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

    def test_rounds(self):
        """As many as were asked for, at most; without any, all is copied in the stop."""
        server = self.server()
        subject = self.subject("busy")
        for rounds in (0, 1, 3):
            moved = self.move(subject, to=server.address, rounds=rounds)
            names = [phase["phase"] for phase in moved["phases"]]
            self.assertEqual(names.count("first copy"), min(rounds, 1))
            self.assertLessEqual(names.count("copy again"), max(rounds - 1, 0))
            self.assertEqual(moved["sent_running"] == 0, rounds == 0)
            self.move(subject, to="local")
        subject.end()

    def test_bandwidth(self):
        subject = self.subject("busy", 8, 4, 1)
        moved = self.move(subject, to=self.server().address, bytes_per_second=32 << 20)
        first = next(phase for phase in moved["phases"] if phase["phase"] == "first copy")
        self.assertGreaterEqual(first["sent"], 32 << 20)
        self.assertGreaterEqual(first["seconds"], 0.99 * first["sent"] / (32 << 20))
        subject.end()

    def test_zeroes_are_not_sent(self):
        subject = self.subject("state")  # which begins with them
        server = self.server()
        for expected in (True, False):
            moved = self.move(subject, to=server.address)
            zero = sum(phase["zero"] for phase in moved["phases"])
            sent = moved["sent_running"] + moved["sent_stopped"]
            self.assertEqual((zero, sent), (256 << 10, 0) if expected else (0, 256 << 10))
            self.assertEqual(subject.say("add"), "1" if expected else "2")
            self.move(subject, to="local")

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

    def expect_gone_soon(self, subject, server, others=0):
        """The move that was cancelled just now: another can begin, and nothing of it is at the server."""
        start = time.monotonic()
        self.assertTrue(wait_for(lambda: "under way" not in subject.ask("move", to="local", dry_run=True).get("error", "")))
        taken = time.monotonic() - start
        self.assertTrue(wait_for(lambda: len(server.workers()) == 1 + others), "a session is left at the server")
        self.assertEqual(subject.ask("describe")["at"], "local")
        return taken

    def test_cancelled_while_a_long_kernel_runs(self):
        """One runs when the move begins, and the next, which came later, when results are waited for."""
        server = self.server()
        self.move(self.subject("busy", 1, 1, 1), to=server.address)  # so that its driver has built what all subjects have
        self.assertTrue(wait_for(lambda: len(server.workers()) == 2))
        subject = self.subject("backlog", 1, 4000 * SLOWER)
        with contextlib.closing(subject.session.watch(command="move", to=server.address)) as told:
            self.assertTrue(any(one.get("phase") == "backlog" for one in told))
            subject.say("more")
            self.assertTrue(any(one.get("phase") == "hold" for one in told))
        self.assertLess(self.expect_gone_soon(subject, server, others=1), 2 * SLOWER)
        self.assertEqual(subject.end()["kernels"], 12)

    def test_cancelled_before_results_wait(self):
        server = self.server()
        subject = self.subject("busy", 16, 4, 4)
        for phase in ("plan", "prepare", "first copy"):
            with self.subTest(phase):
                slow = {"bytes_per_second": 64 << 20}
                self.assertTrue(subject.session.cancel_in(phase, command="move", to=server.address, **slow))
                self.expect_gone_soon(subject, server)
        subject.end()

    def test_cancelled_between_builds(self):
        server = self.server(POCL_KERNEL_CACHE="0")
        subject = self.subject("programs", 16)  # each is built for longer than all else takes
        moved = self.move(subject, to=server.address)
        all_of_them = next(phase["seconds"] for phase in moved["phases"] if phase["phase"] == "prepare")
        self.move(subject, to="local")
        self.assertTrue(subject.session.cancel_in("prepare", command="move", to=server.address))
        self.assertLess(self.expect_gone_soon(subject, server), all_of_them * 0.6)
        subject.end()

    def test_destination_that_refuses(self):
        """Whatever its driver can't do is said, before anything stops; nothing is left there, and the program goes on."""
        driver = str(BUILD / "lib/tests/libfake_vendor.so")
        subject = self.subject("count", options=["--vendors", driver])
        for count, (harm, reason) in enumerate((("fail:clBuildProgram=-11", "a program doesn't build.*-11"),
                                                ("fail:clCreateKernel=-6", "all objects.*-6"),
                                                ("buffers=0", "all objects.*-4")), 1):
            with self.subTest(harm), Server(GRUS, "unix", driver, ENVIRONMENT | {"FAKE_VENDOR": harm},
                                            errors=subprocess.DEVNULL) as server:
                answer = subject.ask("move", to=server.address, fingerprint="xxh3")
                self.assertFalse(answer["ok"], answer)
                self.assertRegex(answer["error"], reason)
                self.assertTrue(wait_for(lambda server=server: len(server.workers()) == 1), "a session is left there")
                self.assertEqual(subject.ask("describe")["at"], "local")
                self.assertEqual((subject.say("add"), subject.say("look")), ("done", str(count)))

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


    def test_answers_for_scripts(self):
        server = self.server()
        subject = self.subject("busy", options=["--name", "job"])
        before = subject.ask("describe")
        done = self.grus(subject, "move", "job", "--to", server.address, "--dry-run", "--json")
        planned = json.loads(done.stdout)[0]
        self.assertEqual((planned["ok"], planned["pid"]), (True, subject.process.pid))
        after = subject.ask("describe")
        for what in ("at", "places", "objects", "memory_bytes"):
            self.assertEqual(after[what], before[what])
        self.assertTrue(wait_for(lambda: len(server.workers()) == 1), "a session is left at the server")
        how = ["--no-overlap", "--fingerprint", "xxh3", "--sample", 4, "--sample-at", "tail"]
        done = self.grus(subject, "move", "job", "--to", server.address, "--json", *how)
        moved = json.loads(done.stdout)[0]
        self.assertEqual((moved["ok"], moved["pid"], moved["program"]), (True, subject.process.pid, before["program"]))
        self.assertEqual(moved["plan"]["bytes"], before["memory_bytes"])
        self.assertEqual(moved["plan"]["objects"], planned["plan"]["objects"])
        phases = {phase["phase"]: phase for phase in moved["phases"]}
        self.assertTrue({"plan", "prepare", "first copy", "hold", "last copy", "switch", "release"} <= phases.keys())
        self.assertEqual(phases["last copy"]["sampled"], phases["last copy"]["sent"])  # all words of these pages change
        self.assertGreater(phases["last copy"]["sampled"], 0)
        stopped = sum(phases[name]["seconds"] for name in ("hold", "last copy", "switch"))
        self.assertAlmostEqual(moved["stop_seconds"], stopped, delta=0.1)
        self.assertLessEqual(moved["drain_seconds"], moved["stop_seconds"])
        self.assertEqual(subject.ask("describe")["at"], server.address)
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


    def test_odd_arguments_are_refused_before_anything_moves(self):
        subject = self.subject("busy")
        before = subject.ask("describe")["places"]
        for status, *arguments in ((2, "why", ""), (2, "suspend", ""), (2, "move", "", "--to", "0:1"),
                                   (2, "move", "all", "--to", "0:1", "--bandwidth", "0"),
                                   (2, "move", "all", "--to", "0:1", "--bandwidth", "-5"),
                                   (1, "move", "all", "--to", "0:1", "--trace", "/nonexistent/trace")):
            done = subprocess.run([GRUS, *arguments], env=subject.environment, capture_output=True, text=True,
                                  timeout=SECONDS, check=False)
            self.assertEqual(done.returncode, status, arguments)
            self.assertEqual(done.stdout, "")
        self.assertEqual(subject.ask("describe")["places"], before)
        subject.end()


class LongMovesTest(TestCase):
    def test_all_workloads(self):
        """Each is moved ten times in one run, gives the checksum that it gives unmoved, and finds its own results right."""
        places = self.places()
        for program in sorted(WORKLOADS.iterdir()):
            with self.subTest(program.name):
                seconds, moves = 5, 0
                while moves < 10:
                    moved = run_and_move(GRUS, [program, "--quick", "--seconds", seconds], places, ENVIRONMENT, timeout=SECONDS)
                    self.assertEqual(moved.status, 0, moved.errors)
                    self.assertEqual(moved.refused, [])
                    told, checksum = moved.output.splitlines()
                    iterations = str(json.loads(told)["iterations"])
                    still = subprocess.run([GRUS, "run", "--", program, "--quick", "--iterations", iterations], env=ENVIRONMENT,
                                           capture_output=True, text=True, timeout=SECONDS, check=False)
                    self.assertEqual(still.stdout.splitlines()[1:], [checksum], still.stderr)
                    moves = len(moved.done)
                    print(f"{program.name}: {moves} moves in {iterations} rounds", file=sys.stderr)
                    seconds *= 2

    def test_awkward_moved_a_thousand_times(self):
        places = self.places()
        moves = 0
        while moves < 1000:
            moved = run_and_move(GRUS, [WORKLOADS / "awkward", "--quick", "--seconds", "20"], places, ENVIRONMENT,
                                 timeout=SECONDS)
            self.assertEqual(moved.status, 0, moved.errors)
            self.assertEqual(moved.refused, [])
            moves += len(moved.done)
        print(f"{moves} moves", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
