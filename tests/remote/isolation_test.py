#!/usr/bin/python3
"""What a session can see of others' memory: nothing. The device's memory is made to hold something else than zeroes where
it is the host's (MALLOC_PERTURB_), as a GPU's does."""

import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True

from serve_test import GRUS, PROGRAMS, Server, through  # noqa: E402

CLEARED = PROGRAMS / "remote_cleared"


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


if __name__ == "__main__":
    unittest.main(verbosity=2)
