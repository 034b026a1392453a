#!/usr/bin/python3
"""Moves of programs on a GPU: to another context of it, to a server and back, to host memory, and to PoCL and back."""

import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import subjects
from subjects import GRUS, Server, TestCase

PLATFORM = os.environ.get("GPU_PLATFORM", "NVIDIA")
VENDORS = pathlib.Path(os.environ["GRUS_VENDORS"])
ENVIRONMENT = {"SUBJECT_PLATFORM": PLATFORM, "GRUS_VENDORS": str(VENDORS)}
SUBJECTS = ("busy", "const", "mapped", "callback", "create")


class GpuMovesTest(TestCase):
    def round_trip(self, places, names=SUBJECTS, times=2, **options):
        for name in names:
            with self.subTest(name):
                subject = self.subject(name, **options)
                for place in places * times:
                    moved = self.move(subject, **place)
                    print(f"{name} to {moved['plan']['destination']}: stop {1e3 * moved['stop_seconds']:.2f} ms",
                          flush=True)
                    time.sleep(0.05)
                subject.end()

    def test_other_context_and_server(self):
        with Server(GRUS, "unix", VENDORS, subjects.ENVIRONMENT | ENVIRONMENT, errors=subprocess.DEVNULL) as server:
            self.round_trip([{"to": "local", "device": PLATFORM}, {"to": server.address, "device": PLATFORM},
                             {"to": "local", "device": PLATFORM}], environment=ENVIRONMENT)

    def test_server_to_server(self):
        """Memory goes straight there."""
        first, second = (self.enterContext(Server(GRUS, kind, VENDORS, subjects.ENVIRONMENT | ENVIRONMENT,
                                                  errors=subprocess.DEVNULL)) for kind in ("unix", "tcp"))
        subject = self.subject("busy", 64, 16, 1, options=["--gpu", first.address], environment=ENVIRONMENT)
        for server in (second, first) * 2:
            moved = self.move(subject, to=server.address, device=PLATFORM)
            self.assertEqual(moved["sent_direct"], moved["sent_running"] + moved["sent_stopped"], moved)
            print(f"busy to {moved['plan']['destination']}: {moved['sent_direct'] >> 20} MiB straight, "
                  f"stop {1e3 * moved['stop_seconds']:.2f} ms", flush=True)
        subject.end()

    def test_suspended(self):
        subject = self.subject("busy", 16, 64, 4, environment=ENVIRONMENT)
        for _ in range(3):
            suspended = subject.ask("suspend")
            self.assertTrue(suspended["ok"], suspended)
            resumed = subject.ask("resume", to="local", device=PLATFORM)
            self.assertTrue(resumed["ok"], resumed)
        subject.end()

    def test_pocl_and_back(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-vendors-")))
        for icd in VENDORS.glob("*.icd"):
            (folder / icd.name).write_text(icd.read_text())
        (folder / "pocl.icd").write_text("libpocl.so.2\n")
        environment = ENVIRONMENT | {"GRUS_VENDORS": str(folder)}
        profile = folder / "profile"
        made = subprocess.run([GRUS, "profile", "make", "local", "-o", profile], env=subjects.ENVIRONMENT | environment,
                              capture_output=True, text=True, check=False)
        print(made.stderr, flush=True)
        if "Portable" not in made.stderr:
            self.skipTest("PoCL isn't installed here")
        self.round_trip([{"to": "local", "device": "Portable"}, {"to": "local", "device": PLATFORM}],
                        environment=environment, options=["--vendors", str(folder), "--profile", str(profile)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
