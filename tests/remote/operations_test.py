#!/usr/bin/python3
"""What whoever runs `grus serve` can rely on: the sandbox of its workers."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

from serve_test import GRUS, PROGRAMS, SECONDS, Server, through  # noqa: E402

USUAL = PROGRAMS / "remote_usual"
OCLGRIND = pathlib.Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
RUSTICL = pathlib.Path("/etc/OpenCL/vendors/rusticl.icd")


class OperationsTest(unittest.TestCase):
    def setUp(self):
        if os.environ["GRUS_SANITIZE"]:
            self.skipTest("a sanitized libgrus.so can't be loaded into other programs")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-operations-")))

    def start(self, *options, kind="unix", vendors=None, **environment):
        return self.enterContext(Server(GRUS, kind, vendors, os.environ | environment, options))

    def expect_well(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class SandboxTest(OperationsTest):
    def filters(self, server):
        """Of its workers: 0 without a sandbox."""
        statuses = [pathlib.Path(f"/proc/{worker}/status").read_text() for worker in server.workers()]
        return {line.split()[1] for status in statuses for line in status.splitlines() if line.startswith("Seccomp:")}

    def test_drivers_work_in_it(self):
        server = self.start(POCL_CACHE_DIR=str(self.folder))  # an empty one: PoCL compiles, and runs a linker
        self.expect_well(through(server, USUAL))
        self.assertEqual(self.filters(server), {"2"})
        self.assertTrue(list(self.folder.iterdir()))

    @unittest.skipUnless(RUSTICL.exists(), "rusticl isn't installed")
    def test_rusticl_works_in_it(self):
        self.expect_well(through(self.start(vendors=RUSTICL, RUSTICL_ENABLE="llvmpipe"), USUAL))

    @unittest.skipUnless(OCLGRIND.exists(), "oclgrind isn't installed")
    def test_oclgrind_works_in_it(self):
        self.expect_well(through(self.start(vendors=OCLGRIND), USUAL))

    def test_it_can_be_left_out(self):
        server = self.start("--no-sandbox")
        self.expect_well(through(server, USUAL))
        self.assertEqual(self.filters(server), {"0"})


if __name__ == "__main__":
    unittest.main()
