#!/usr/bin/python3
"""Programs that write their memory in every way while they are moved, and what they were told of their devices."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from subjects import ENVIRONMENT, GRUS, SLOWER, SOURCE, TestCase  # noqa: E402

WRITTEN_MEANWHILE = (4 if SLOWER == 1 else 12) << 20  # at most, of 16 MiB


class MemoryTest(TestCase):
    def test_every_way_to_write(self):
        self.round_trip("ways")

    def test_pages_watched_by_the_system(self):
        """Only what was written is looked at, and nothing that was written is missed."""
        server = self.server()
        slow = {"bytes_per_second": 64 << 20}  # so that the program writes meanwhile
        for how, least, most in (("system", 1, WRITTEN_MEANWHILE), ("xxh3", 16 << 20, 16 << 20)):
            subject = self.subject("ways")
            for _ in range(3):
                moved = self.move(subject, to=server.address, fingerprint=how, **slow)
                read = sum(phase["read"] for phase in moved["phases"] if phase["phase"] == "last copy")
                self.assertTrue(least <= read <= most, moved)
                self.assertEqual(moved["plan"]["notes"], [])
                self.move(subject, to="local", fingerprint="xxh3")
            subject.end()

    def test_what_is_known_to_be_written(self):
        """Without kernels, nothing else is looked at in the stop: neither by the host, nor by a device, nor by a server."""
        first, second = self.server(), self.server()
        own = {"GRUS_MEMORY": "own"}
        ways = [({}, [first.address, second.address, "local"]), (own, [self.server(**own).address, "local"])]
        for environment, places in ways:
            for kernels, least, most in ((0, 1, WRITTEN_MEANWHILE), (1, 16 << 20, 16 << 20)):
                subject = self.subject("ways", kernels, environment=environment)
                for place in places * 2:
                    moved = self.move(subject, to=place, bytes_per_second=64 << 20)
                    read = sum(phase["read"] for phase in moved["phases"] if phase["phase"] == "last copy")
                    self.assertTrue(least <= read <= most, moved)
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
        told = subject.end()
        self.assertEqual((told["formats"], told["version"]), (2, "OpenCL C 1.1"))

    def test_size_of_memory_in_a_profile(self):
        """The least that a device has, which every destination must have. Without a profile, what is in use must fit."""
        small = self.server(POCL_MEMORY_LIMIT="1")
        both = self.profile("local", small.address)
        subject = self.subject("formats", options=["--profile", both])
        self.move(subject, to=small.address)
        self.assertEqual(subject.end()["memory"], 1 << 30)
        name = "CL_DEVICE_GLOBAL_MEM_SIZE"
        lines = both.read_text().splitlines()
        both.write_text("\n".join(f"{name} {2 << 30}" if line.startswith(name) else line for line in lines) + "\n")
        subject = self.subject("formats", options=["--profile", both])
        self.assertRegex(self.refused(subject, to=small.address), f"{name}: the program was told {2 << 30}, there it is")
        self.assertEqual(subject.end()["memory"], 2 << 30)
        both.write_text("\n".join(line for line in lines if not line.startswith(name)) + "\n")  # as they were once
        subject = self.subject("formats", options=["--profile", both])
        self.move(subject, to=small.address)
        self.assertEqual(subject.end()["memory"], 2 << 30)

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
