#!/usr/bin/python3
"""How sessions share a device's memory: quotas, what programs are told there is, and what is moved out for others. The
device is the host's, with its memory taken for one of its own (GRUS_MEMORY=own)."""

import json
import os
import pathlib
import pwd
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

from serve_test import GRUS, PROGRAMS, SECONDS, Server, through, wait_for  # noqa: E402

GREEDY = PROGRAMS / "remote_greedy"
SWAPPED = PROGRAMS / "remote_swapped"
MIB = 1 << 20


class MemoryTest(unittest.TestCase):
    def setUp(self):
        if os.environ["GRUS_SANITIZE"]:
            self.skipTest("a sanitized libgrus.so can't be loaded into other programs")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-memory-")))
        self.control = f"unix:{self.folder}/control"
        self.audit = self.folder / "audit"
        self.own = os.environ | {"GRUS_MEMORY": "own"}

    def serve(self, *options, kind="tcp"):
        """Over plain TCP every session is a tenant by itself. A second socket answers questions."""
        return self.enterContext(Server(GRUS, kind, None, self.own,
                                        ["--listen", self.control, "--audit", str(self.audit), *options]))

    def start(self, server, *options):
        program = subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", SWAPPED, *map(str, options)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.own)
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        return program

    def expect_ready(self, program):
        if program.stdout.readline() != "ready\n":
            self.fail(program.communicate()[1])

    def end(self, program):
        out, errors = program.communicate("\n", timeout=SECONDS)
        self.assertEqual(program.returncode, 0, errors)
        self.assertIn("done\n", out)

    def sessions(self):
        done = subprocess.run([GRUS, "ps", "--json", "--interval", "0", "--gpu", self.control], capture_output=True,
                              text=True, timeout=SECONDS, check=True)
        return json.loads(done.stdout)[0]["sessions"]

    def ends(self, count):
        """What sessions had done when they ended."""
        def read():
            events = [json.loads(line) for line in self.audit.read_text().splitlines()]
            return [event for event in events if event["event"] == "end"]
        self.assertTrue(wait_for(lambda: len(read()) == count, 10), read())
        return read()

    def tenants(self, *options):
        done = subprocess.run([GRUS, "tenants", self.control, "--json", *options], capture_output=True, text=True,
                              timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def told(self, address):
        """The bytes of global memory, and of the largest buffer, that a program is told of."""
        done = subprocess.run([GRUS, "run", "--gpu", address, "--", "clinfo", "--raw"], capture_output=True, text=True,
                              timeout=SECONDS, check=True)
        return [int(re.search(rf"CL_DEVICE_{name}\s+(\d+)", done.stdout)[1])
                for name in ("GLOBAL_MEM_SIZE", "MAX_MEM_ALLOC_SIZE")]


class SwapTest(MemoryTest):
    def test_sessions_with_three_times_the_devices_memory_all_come_to_their_end(self):
        for options in ([], ["--shares"]):
            with self.subTest(options):
                self.audit.unlink(missing_ok=True)
                with Server(GRUS, "tcp", None, self.own,
                            ["--audit", str(self.audit), "--device-memory", "64MiB", *options]) as server:
                    programs = [self.start(server, "--buffers", 12, "--mib", 4, "--wait") for _ in range(4)]
                    for program in programs:
                        self.expect_ready(program)
                    for program in programs:
                        program.stdin.write("\n")
                        program.stdin.flush()
                    for program in programs:
                        self.end(program)
                    ends = self.ends(4)
                    self.assertGreater(sum(end["moved_out_bytes"] for end in ends), 64 * MIB)
                    for end in ends:
                        self.assertEqual(end["memory_peak_bytes"], 48 * MIB)
                        self.assertLessEqual(end["on_device_bytes"], 64 * MIB)

    def test_a_session_with_three_times_the_devices_memory(self):
        server = self.serve("--device-memory", "16MiB", kind="unix")
        program = self.start(server, "--buffers", 12, "--mib", 4, "--wait")
        self.expect_ready(program)
        session, = self.sessions()
        self.assertLessEqual(session["on_device_bytes"], 16 * MIB)
        self.assertGreaterEqual(session["swapped_out_bytes"], 32 * MIB)
        self.end(program)

    def test_what_an_idle_session_has_makes_room_and_comes_back(self):
        server = self.serve("--device-memory", "64MiB")
        idle = self.start(server, "--wait")
        self.expect_ready(idle)
        other = self.start(server, "--wait")
        self.expect_ready(other)
        out = {one["swapped_out_bytes"] for one in self.sessions()}
        self.assertTrue(any(out), self.sessions())
        self.end(other)
        self.end(idle)

    def test_a_kernel_that_runs_in_pieces_lets_go_of_its_memory(self):
        server = self.serve("--device-memory", "64MiB", "--shares")
        long = self.start(server, "--buffers", 1, "--mib", 48, "--rounds", 0, "--long", "--wait")
        self.expect_ready(long)
        start = time.monotonic()
        self.end(self.start(server, "--buffers", 1, "--mib", 48, "--rounds", 2))
        took = time.monotonic() - start
        self.assertTrue(any(one["moved_out_bytes"] >= 48 * MIB for one in self.sessions()))
        self.end(long)
        self.assertLess(took, 30)

    def test_what_has_views_stays(self):
        server = self.serve("--device-memory", "16MiB")
        self.end(self.start(server, "--view"))

    def test_beside_what_can_not_be_moved_out_others_work_at_the_host(self):
        server = self.serve("--device-memory", "6MiB")
        first = self.start(server, "--buffers", 1, "--view", "--wait")
        self.expect_ready(first)
        self.end(self.start(server, "--buffers", 4))  # also those with contents from the beginning
        self.end(first)

    def test_who_wants_more_than_there_is_fails_alone(self):
        server = self.serve("--device-memory", "64MiB", "--swap", "64MiB")
        good = self.start(server, "--wait")
        self.expect_ready(good)
        done = through(server, SWAPPED, "--fails", "--buffers", "1", "--mib", "80", env=self.own)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.end(good)

    def test_a_command_that_needs_more_than_the_device_has_works_at_the_host(self):
        server = self.serve("--device-memory", "6MiB")
        program = self.start(server, "--buffers", 8, "--mib", 4, "--wait")
        self.expect_ready(program)
        session, = self.sessions()
        self.assertLessEqual(session["on_device_bytes"], 6 * MIB)
        self.assertEqual(session["on_device_bytes"] + session["swapped_out_bytes"], 32 * MIB)
        self.end(program)
        # Beside another who has all of what is left.
        other = self.start(server, "--buffers", 1, "--mib", 4, "--wait")
        self.expect_ready(other)
        self.end(self.start(server, "--buffers", 8, "--mib", 4))
        self.end(other)

    def test_without_room_at_the_host_who_asks_fails_alone(self):
        server = self.serve("--device-memory", "64MiB", "--swap", "1MiB")
        good = self.start(server, "--wait")
        self.expect_ready(good)
        done = through(server, SWAPPED, "--fails", "--buffers", "1", "--mib", "32", env=self.own)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.end(good)
        self.ends(2)
        self.end(self.start(server))

    def test_what_there_is_no_room_for_at_the_host_is_packed(self):
        server = self.serve("--device-memory", "64MiB", "--swap", "8MiB")
        first = self.start(server, "--dull", "--wait")
        self.expect_ready(first)
        other = self.start(server, "--dull", "--wait")
        self.expect_ready(other)
        sessions = self.sessions()
        self.assertGreaterEqual(sum(one["swapped_out_bytes"] for one in sessions), 32 * MIB)
        self.assertLess(sum(one["swap_used_bytes"] for one in sessions), 8 * MIB)
        self.end(first)
        self.end(other)
        self.assertGreaterEqual(sum(end["moved_in_bytes"] for end in self.ends(2)), 32 * MIB)

    def test_who_is_killed_gives_its_room_back(self):
        server = self.serve("--device-memory", "64MiB", "--swap", "1MiB")
        first = self.start(server, "--wait")
        self.expect_ready(first)
        first.kill()
        first.wait()
        self.ends(1)
        self.end(self.start(server))

    def test_a_session_that_is_moved_takes_along_what_was_moved_out(self):
        first, other = [self.enterContext(Server(GRUS, "unix", None, self.own, ["--device-memory", "96MiB"]))
                        for _ in range(2)]
        program = self.start(first, "--buffers", 30, "--rounds", 1, "--wait")
        self.expect_ready(program)
        move = subprocess.run([GRUS, "move", str(program.pid), "--to", other.address], capture_output=True, text=True,
                              timeout=SECONDS, check=False)
        self.assertEqual(move.returncode, 0, move.stdout + move.stderr)
        self.end(program)


class ContextTest(MemoryTest):
    """With a driver that has so many contexts and no more, for all processes together."""

    def setUp(self):
        super().setUp()
        library = GRUS.parent.parent / "lib/tests/libfake_vendor.so"
        vendors = self.folder / "vendors"
        vendors.mkdir()
        (vendors / "fake.icd").write_text(f"{library}\n")
        # With the host's memory: that driver runs no kernels, by which a device would tell what has changed.
        self.own = os.environ | {"OCL_ICD_VENDORS": str(vendors), "GRUS_VENDORS": str(vendors)}

    def serve_contexts(self, count):
        self.own |= {"FAKE_VENDOR": f"unified,contexts={count}@{self.folder}"}
        return self.serve("--no-sandbox")

    def begin(self, server):
        program = self.start(server, "--buffers", 2, "--rounds", 0, "--wait")
        self.expect_ready(program)
        return program

    def test_who_does_nothing_steps_aside_and_comes_back(self):
        server = self.serve_contexts(2)
        programs = [self.begin(server) for _ in range(4)]
        self.assertTrue(wait_for(lambda: len(self.sessions()) == 2, 10))
        events = [json.loads(line)["event"] for line in self.audit.read_text().splitlines()]
        self.assertGreaterEqual(events.count("asked to step aside"), 2)
        for program in programs:
            self.end(program)
        self.assertTrue(wait_for(lambda: not self.sessions(), 10))
        ends = [line for line in self.audit.read_text().splitlines() if json.loads(line)["event"] == "end"]
        self.assertGreaterEqual(len(ends), 4 + 2)  # at least two of them came twice

    def test_who_stepped_aside_can_be_told_to_stay_there(self):
        server = self.serve_contexts(1)
        first, second = (self.begin(server) for _ in range(2))
        self.assertTrue(wait_for(lambda: len(self.sessions()) == 1, 10))
        self.end(second)
        for command in ("suspend", "resume"):
            done = subprocess.run([GRUS, command, str(first.pid)], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            if command == "suspend":
                first.stdin.write("\n")
                first.stdin.flush()
                time.sleep(1)
                self.assertEqual(self.sessions(), [])
        self.end(first)

    def test_one_is_ready_before_anybody_comes(self):
        """The only one that there is: who comes could have no other."""
        server = self.serve_contexts(1)
        place = f"@{self.folder}0"
        looks = []

        def is_taken():  # also for a moment, while the worker finds out what the device does
            looks.append(place in pathlib.Path("/proc/net/unix").read_text().split())
            return all(looks[-10:]) and len(looks) >= 10

        self.assertTrue(wait_for(is_taken, 10))
        self.end(self.begin(server))

    def test_one_that_is_ready_makes_room(self):
        """Before anybody is asked to step aside."""
        server = self.serve_contexts(2)
        before = server.workers()
        program = self.start(server, "--buffers", 2, "--rounds", 0, "--wait", "--another")
        self.expect_ready(program)
        self.assertNotIn("asked to step aside", self.audit.read_text())
        self.assertTrue(wait_for(lambda: len(server.workers()) == len(before) + 1, 10))  # one is ready again
        self.end(program)

    def test_without_room_who_asks_fails_alone(self):
        server = self.serve_contexts(0)
        done = through(server, SWAPPED, "--buffers", "2", "--rounds", "0", env=self.own)
        self.assertEqual(done.returncode, 1)
        self.assertIn("context: OpenCL error -5", done.stderr)


class QuotaTest(MemoryTest):
    def test_programs_are_told_what_they_may_have(self):
        with Server(GRUS, "tcp") as server:
            real, largest = self.told(server.address)
        for quota, expected in (("96MiB", [96 * MIB, 96 * MIB]), ("1024TiB", [real, largest])):
            with Server(GRUS, "tcp", options=["--memory", quota]) as server:
                self.assertEqual(self.told(server.address), expected)

    def test_parts_shrink_as_tenants_come_and_grow_as_they_leave(self):
        with Server(GRUS, "tcp") as server:
            real, largest = self.told(server.address)
        server = self.serve("--memory-shares")
        self.assertEqual(self.told(server.address), [real, largest])
        others = [self.start(server, "--wait", "--mib", 1) for _ in range(3)]
        for other in others:
            self.expect_ready(other)
        self.assertTrue(wait_for(lambda: len(self.sessions()) == 3, 10))
        self.assertEqual(self.told(server.address), [real // 4, min(largest, real // 4)])
        for other in others[1:]:
            self.end(other)
        self.assertTrue(wait_for(lambda: len(self.sessions()) == 1, 10))
        self.assertEqual(self.told(server.address), [real // 2, min(largest, real // 2)])

    def test_all_sessions_of_a_tenant_share_a_quota(self):
        server = self.serve("--memory", "100MiB", kind="unix")
        first = self.start(server, "--buffers", 15, "--mib", 4, "--wait")
        self.expect_ready(first)
        done = through(server, SWAPPED, "--buffers", "15", "--mib", "4", env=self.own)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("buffer: OpenCL error -4", done.stderr)
        self.end(self.start(server, "--buffers", 10, "--mib", 4))
        self.assertTrue(wait_for(lambda: len(self.sessions()) == 1, 10))
        tenant, = self.tenants()
        self.assertEqual((tenant["quota_bytes"], tenant["memory_bytes"]), (100 * MIB, 60 * MIB))
        self.end(first)
        self.assertTrue(wait_for(lambda: not self.sessions(), 10))
        self.end(self.start(server, "--buffers", 25, "--mib", 4))

    def test_a_tenants_quota_can_be_set(self):
        server = self.serve("--tenant", "alice:memory=2GiB", kind="unix")
        name = pwd.getpwuid(os.getuid()).pw_name
        self.assertEqual({one["tenant"]: one["quota_bytes"] for one in self.tenants()}, {"alice": 2048 * MIB})
        self.tenants("--set", name, "--memory", "40MiB")
        self.assertEqual(self.told(server.address), [40 * MIB, 40 * MIB])
        self.assertIn("buffer: OpenCL error -4", through(server, SWAPPED, env=self.own).stderr)
        self.tenants("--set", name, "--memory", "48MiB")
        self.end(self.start(server))
        for options in (["--memory", "3GiB"], ["--memory", "0"], ["--set", "alice", "--memory", "much"]):
            done = subprocess.run([GRUS, "tenants", self.control, *options], capture_output=True, text=True, check=False,
                                  timeout=SECONDS)
            self.assertEqual(done.returncode, 2, done.stderr)

    def test_a_quota_counts_at_once_for_programs_that_run(self):
        name = pwd.getpwuid(os.getuid()).pw_name
        for own in (os.environ, self.own):
            with self.subTest(own=own is self.own), Server(GRUS, "unix") as server, subprocess.Popen(
                    [GRUS, "run", "--gpu", server.address, "--", GREEDY, "--memory"], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True, env=own) as program:

                def take():
                    program.stdin.write("\n")
                    program.stdin.flush()
                    return int(program.stdout.readline())

                def allow(size):
                    done = subprocess.run([GRUS, "tenants", server.address, "--set", name, "--memory", size], check=False,
                                          capture_output=True, text=True, timeout=SECONDS)
                    self.assertEqual(done.returncode, 0, done.stderr)

                self.assertEqual(take(), 0)
                allow("100MiB")
                self.assertEqual((take(), take()), (-4, -4))
                allow("150MiB")
                self.assertEqual((take(), take()), (0, -4))
                allow("0")
                self.assertEqual((take(), take()), (0, 0))
                program.communicate("")
                self.assertEqual(program.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
