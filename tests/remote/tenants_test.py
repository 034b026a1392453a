#!/usr/bin/python3
"""Programs that share a device of one server: how its time is shared out, and what happens to who takes too much."""

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

TENANT = PROGRAMS / "remote_tenant"
USUAL = PROGRAMS / "remote_usual"
GREEDY = PROGRAMS / "remote_greedy"


class Tenant:
    """A program that is ready, and runs when it is told to."""

    def __init__(self, server, *options):
        self.process = subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", TENANT, *map(str, options)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError(self.process.communicate()[1])

    def start(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        out, errors = self.process.communicate(timeout=SECONDS)
        if self.process.returncode != 0:
            raise AssertionError(errors)
        return json.loads(out)

    def close(self):
        self.process.kill()
        self.process.communicate()


class TenantsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-tenants-")))

    def serve(self, *options, kind="tcp", shares=("--shares",)):
        """Over plain TCP every session is a tenant by itself. A second socket answers questions."""
        self.control = f"unix:{self.folder}/control"
        return self.enterContext(Server(GRUS, kind, None, os.environ, ["--listen", self.control, *shares, *options]))

    def tenant(self, server, *options):
        tenant = Tenant(server, *options)
        self.addCleanup(tenant.close)
        return tenant

    def run_all(self, tenants):
        for tenant in tenants:
            tenant.start()
        return [tenant.end() for tenant in tenants]

    def grus(self, *arguments):
        return subprocess.run([GRUS, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)

    def tenants(self, *options):
        done = self.grus("tenants", self.control, "--json", *map(str, options))
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def set(self, tenant, *options):
        return self.tenants("--set", tenant, *options)

    def sessions(self):
        done = self.grus("ps", "--json", "--interval", "0", "--gpu", self.control)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)[0]["sessions"]


class SharesTest(TenantsTest):
    def share(self, one, other):
        return 100 * one["rounds"] / (one["rounds"] + other["rounds"])

    def had(self):
        """Seconds of the device's time, by tenant."""
        return {one["tenant"]: one["device_seconds"] for one in self.tenants()}

    # Of the time that the server measured: where others use the machine as well, kernels take now longer and now shorter.
    # bench/tenants.py compares what was done in it.
    def part_of_first(self, *weights):
        server = self.serve()
        tenants = [self.tenant(server, "--ms", 1, "--seconds", SECONDS, "--depth", 300),
                   self.tenant(server, "--ms", 12, "--seconds", SECONDS, "--depth", 50)]
        names = [one["tenant"] for one in self.sessions()]
        for name, weight in zip(names, weights):
            self.set(name, "--weight", weight)
        for tenant in tenants:
            tenant.start()
        self.assertTrue(wait_for(lambda: min(self.had()[name] for name in names) > 0.2, 20))
        before = self.had()
        self.assertTrue(wait_for(lambda: sum(self.had().values()) > sum(before.values()) + 4, 30))
        had = {name: time - before[name] for name, time in self.had().items()}
        return 100 * had[names[0]] / sum(had.values())

    def test_short_and_long_kernels_have_half_each(self):
        self.assertAlmostEqual(self.part_of_first(1, 1), 50, delta=12)

    def test_weights_are_shares(self):
        self.assertAlmostEqual(self.part_of_first(1, 3), 25, delta=11)

    def test_a_cap_holds_for_who_is_alone(self):
        server = self.serve()
        tenant = self.tenant(server, "--ms", 1, "--seconds", SECONDS, "--depth", 300)
        name = self.sessions()[0]["tenant"]
        self.set(name, "--cap", 20)
        before = self.had()[name]
        tenant.start()
        self.assertTrue(wait_for(lambda: self.had()[name] > before + 0.2, 20))
        start, before = time.monotonic(), self.had()[name]
        self.assertTrue(wait_for(lambda: self.had()[name] > before + 0.3, 20))
        self.assertAlmostEqual((self.had()[name] - before) / (time.monotonic() - start) * 100, 20, delta=11)

    def test_results_are_right_where_many_take_turns(self):
        server = self.serve()
        tenants = [self.tenant(server, "--ms", 0.5 * number, "--seconds", 0.5) for number in range(1, 5)]
        for done in self.run_all(tenants):
            self.assertGreater(done["kernels"], 0)

    def test_a_newcomer_waits_for_no_backlog(self):
        server = self.serve()
        long = self.tenant(server, "--ms", 300, "--seconds", 4, "--depth", 6)
        short = self.tenant(server, "--ms", 1, "--seconds", 1, "--depth", 1)
        long.start()
        self.assertTrue(wait_for(lambda: any(one["device_seconds"] > 2.5 for one in self.sessions()), 20))
        short.start()
        done = short.end()
        long.end()
        # One kernel, not six of them; and some for a machine that is busy.
        self.assertLess(done["longest_wait_ms"], 900)

    # After its first few, which show how long they take.
    def test_long_kernels_are_split_for_others(self):
        waits = {}
        server = self.serve()
        for items in (65536, 1):
            long = self.tenant(server, "--ms", 200, "--seconds", 9, "--depth", 2, "--items", items)
            short = self.tenant(server, "--ms", 1, "--seconds", 2, "--depth", 1)
            long.start()
            self.assertTrue(wait_for(lambda: any(one["device_seconds"] > 5 for one in self.sessions()), 30))
            short.start()
            waits[items] = short.end()["p99_wait_ms" if items > 1 else "longest_wait_ms"]
            self.assertGreater(long.end()["kernels"], 0)
            self.assertTrue(wait_for(lambda: not self.sessions(), 10))
        # By how much depends on what else the machine does.
        self.assertLess(2 * waits[65536], waits[1], waits)

    def test_programs_work_without(self):
        server = self.serve(shares=())
        self.assertEqual(through(server, USUAL).returncode, 0)
        done = self.grus("tenants", self.control)
        self.assertEqual(done.returncode, 1)
        self.assertIn("it doesn't share out its devices", done.stderr)


class SplitTest(TenantsTest):
    def test_that_a_kernel_runs_in_pieces_is_not_seen(self):
        errors = self.enterContext(tempfile.TemporaryFile("w+"))
        for shares in (["--shares"], []):
            with Server(GRUS, "tcp", None, os.environ | {"GRUS_LOG": "debug"}, shares, errors) as server:
                done = through(server, PROGRAMS / "remote_split")
                self.assertEqual(done.returncode, 0, done.stderr)
            errors.seek(0)
            pieces = [int(count) for count in re.findall(r"(\d+) work-items in \d+ pieces", errors.read())]
            self.assertEqual(bool(pieces), bool(shares))
            errors.seek(0)
            errors.truncate()


class TermsTest(TenantsTest):
    def test_a_user_is_a_tenant(self):
        server = self.serve(kind="unix")
        self.assertEqual(through(server, USUAL).returncode, 0)
        self.assertEqual(through(server, USUAL).returncode, 0)
        tenant, = self.tenants()
        self.assertEqual(tenant["tenant"], pwd.getpwuid(os.getuid()).pw_name)
        self.assertGreater(tenant["device_seconds"], 0)

    def test_they_are_read_at_the_start_and_changed_later(self):
        self.serve("--tenant", "alice:weight=3", "--tenant", "bob:cap=50,weight=2")
        terms = {one["tenant"]: (one["weight"], one["cap_percent"]) for one in self.tenants()}
        self.assertEqual(terms, {"alice": (3, 100), "bob": (2, 50)})
        self.set("alice", "--cap", 10)
        terms = {one["tenant"]: (one["weight"], one["cap_percent"]) for one in self.set("carol", "--weight", 7)}
        self.assertEqual(terms, {"alice": (3, 10), "bob": (2, 50), "carol": (7, 100)})
        self.assertIn("alice", self.grus("tenants", self.control).stdout)

    def test_what_makes_no_sense_is_refused(self):
        self.serve()
        for options in (["--weight", "3"], ["--set", "a", "--weight", "0"], ["--set", "a", "--cap", "101"],
                        ["--set", "a" * 300, "--cap", "5"]):
            self.assertEqual(self.grus("tenants", self.control, *options).returncode, 2, options)
        for text in ("alice", "alice:weight=0", "alice:weight=x", "alice:cap=101", "alice:colour=2", ":weight=2"):
            done = self.grus("serve", "--listen", f"unix:{self.folder}/other", "--tenant", text)
            self.assertEqual(done.returncode, 2, text)
            self.assertIn(f"--tenant {text}: ", done.stderr)

    def test_who_has_gone_is_forgotten(self):
        server = self.serve()
        self.assertEqual(through(server, USUAL).returncode, 0)
        self.assertTrue(wait_for(lambda: not self.tenants(), 10))


class GreedTest(TenantsTest):
    def test_an_endless_kernel_ends_its_session_once_others_wait(self):
        audit = self.folder / "audit"
        server = self.serve("--time-limit", "1", "--audit", str(audit))
        greedy = self.tenant(server, "--endless")
        good = self.tenant(server, "--ms", 1, "--seconds", 3, "--depth", 4)
        greedy.start()
        time.sleep(1.5)  # alone, it may go on for longer than the limit
        self.assertIsNone(greedy.process.poll())
        good.start()
        start = time.monotonic()
        errors = greedy.process.communicate(timeout=SECONDS)[1]
        self.assertLess(time.monotonic() - start, 1 + 1 + 1)  # limit, a second, and some for a machine that is busy
        self.assertNotEqual(greedy.process.returncode, 0)
        why = "a command of it took longer than 1 s while others waited for the device"
        self.assertIn(f"it ended this session: {why}; OpenCL calls fail from here on", errors)
        self.assertGreater(good.end()["kernels"], 0)
        ends = [json.loads(line) for line in audit.read_text().splitlines()]
        self.assertIn(why, [event.get("why") for event in ends])

    def test_through_a_unix_socket_too(self):
        server = self.serve("--time-limit", "1", kind="unix")
        greedy = self.tenant(server, "--endless")
        good = self.tenant(server, "--ms", 1, "--seconds", 3, "--depth", 4)
        greedy.start()
        self.assertTrue(wait_for(lambda: any(one["device_seconds"] > 0.5 for one in self.sessions()), 10))
        good.start()
        self.assertIn("it ended this session: a command", greedy.process.communicate(timeout=SECONDS)[1])
        self.assertGreater(good.end()["kernels"], 0)

    def test_an_endless_build_ends_its_session(self):
        audit = self.folder / "audit"
        server = self.serve("--build-limit", "1", "--audit", str(audit), kind="unix")
        done = through(server, GREEDY, "--build")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("it ended this session: a build took longer than 1 s; OpenCL calls fail from here on", done.stderr)
        self.assertTrue(wait_for(lambda: "a build took longer than 1 s" in audit.read_text(), 10))
        self.assertEqual(through(server, USUAL).returncode, 0)

    def test_too_many_objects_end_their_session(self):
        for kind in ("unix", "tcp"):
            server = self.enterContext(Server(GRUS, kind, options=["--objects", "1000"]))
            done = through(server, GREEDY, "--objects", "2000")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("it ended this session: it has more than 1000 objects", done.stderr)
            self.assertEqual(through(server, GREEDY, "--objects", "900").returncode, 0)

    def test_too_much_output_ends_its_session(self):
        for kind in ("unix", "tcp"):
            server = self.enterContext(Server(GRUS, kind, options=["--output-limit", "100KiB"]))
            done = through(server, GREEDY, "--print", "20")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("it ended this session: its kernels printed more than 102400 bytes", done.stderr)
            self.assertLessEqual(len(done.stdout), 102400)
            done = through(server, GREEDY, "--print", "4")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("says hello\n"), 4 * 1024)

    def test_a_tenant_has_so_many_sessions_at_a_time(self):
        for kind in ("unix", "tcp"):  # over plain TCP, a host has
            with self.subTest(kind):
                self.expect_one_session(Server(GRUS, kind, options=["--tenant-sessions", "1"]))

    def expect_one_session(self, started):
        with started as server:
            first = self.tenant(server)
            done = through(server, USUAL)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("it has as many sessions as it may have", done.stderr)
            first.close()
            self.assertTrue(wait_for(lambda: through(server, USUAL).returncode == 0, 10))


if __name__ == "__main__":
    unittest.main(verbosity=2)
