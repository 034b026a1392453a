#!/usr/bin/python3
"""`grus enable` and `grus disable`, on a folder of their own."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["GRUS_BUILD"])
GRUS = BUILD / "bin" / "grus"
LIBRARY = BUILD / "lib" / "libgrus.so"


class EnableTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.vendors = {"pocl.icd": "libpocl.so.2\n", "mesa.icd": "libMesaOpenCL.so.1\n"}
        self.write({**self.vendors, "notes.txt": "not an ICD file\n"})

    def write(self, files):
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def files(self):
        return {path.name: path.read_text() for path in self.folder.iterdir() if path.is_file()}

    def grus(self, *arguments, status=0):
        done = subprocess.run([GRUS, *arguments, "--vendors-dir", self.folder], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def enabled(self):
        return {"grus.icd": f"{LIBRARY}\n", "pocl.icd.grus": self.vendors["pocl.icd"],
                "mesa.icd.grus": self.vendors["mesa.icd"], "notes.txt": "not an ICD file\n"}

    def test_hides_the_vendors_and_shows_them_again(self):
        before = self.files()
        self.assertIn("hide", self.grus("enable"))
        self.assertEqual(self.files(), self.enabled())
        self.grus("disable")
        self.assertEqual(self.files(), before)

    def test_does_nothing_the_second_time(self):
        self.grus("enable")
        self.assertIn("nothing to do", self.grus("enable"))
        self.assertEqual(self.files(), self.enabled())
        self.grus("disable")
        self.assertIn("nothing to do", self.grus("disable"))

    def test_dry_run_changes_nothing(self):
        before = self.files()
        self.assertIn("pocl.icd.grus", self.grus("enable", "--dry-run"))
        self.assertEqual(self.files(), before)
        self.grus("enable")
        self.grus("disable", "--dry-run")
        self.assertEqual(self.files(), self.enabled())

    def test_hides_what_an_upgrade_brought_back(self):
        self.grus("enable")
        self.write({"pocl.icd": "libpocl.so.3\n"})
        self.grus("enable")
        self.assertEqual(self.files(), {**self.enabled(), "pocl.icd.grus": "libpocl.so.3\n"})

    def test_disable_prefers_what_an_upgrade_brought_back(self):
        self.grus("enable")
        self.write({"pocl.icd": "libpocl.so.3\n"})
        self.grus("disable")
        self.assertEqual(self.files(), {**self.vendors, "pocl.icd": "libpocl.so.3\n", "notes.txt": "not an ICD file\n"})

    def test_takes_over_from_another_build_of_grus(self):
        self.write({"grus.icd": "/opt/old/lib/libgrus.so\n"})
        self.grus("enable")
        self.assertEqual(self.files(), self.enabled())

    def test_keeps_links(self):
        (self.folder / "linked.icd").symlink_to("/opt/vendor/linked.icd")
        self.grus("enable")
        self.assertEqual(os.readlink(self.folder / "linked.icd.grus"), "/opt/vendor/linked.icd")
        self.grus("disable")
        self.assertEqual(os.readlink(self.folder / "linked.icd"), "/opt/vendor/linked.icd")

    def test_everybody_can_read_the_file_whatever_the_umask(self):
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        self.grus("enable")
        self.assertEqual((self.folder / "grus.icd").stat().st_mode & 0o777, 0o644)

    @unittest.skipIf(os.environ.get("GRUS_SANITIZE"), "a sanitized libgrus.so can't be loaded into other programs")
    @unittest.skipUnless(shutil.which("clinfo"), "clinfo isn't installed")
    def test_programs_see_each_device_once_and_through_grus(self):
        for name in self.vendors:
            (self.folder / name).unlink()
        shutil.copy(os.environ["GRUS_VENDORS"], self.folder / "pocl.icd")
        report = self.folder / "report.txt"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRUS_")}
        environment |= {"OCL_ICD_VENDORS": str(self.folder), "GRUS_REPORT": str(report)}

        def devices():
            return subprocess.run(["clinfo", "-l"], env=environment, capture_output=True, text=True, check=True).stdout

        natively = devices()
        self.assertFalse(report.exists())
        self.grus("enable")
        self.assertEqual(devices(), natively)
        self.assertTrue(report.exists())

    def test_puts_everything_back_when_a_step_fails(self):
        self.write({"pocl.icd.grus": "an older one\n"})
        # Where the older one would be put aside there is something that can't be replaced.
        (self.folder / ".pocl.icd.grus-replaced" / "in the way").mkdir(parents=True)
        before = self.files()
        self.assertIn("nothing was changed", self.grus("enable", status=1))
        self.assertEqual(self.files(), before)

    def test_leaves_no_files_behind(self):
        self.grus("enable")
        self.write({"pocl.icd": "libpocl.so.3\n"})
        self.grus("enable")
        self.grus("disable")
        self.assertEqual(set(self.files()), {*self.vendors, "notes.txt"})

    def test_refuses_a_grus_icd_that_is_someone_elses(self):
        self.write({"grus.icd": "libsomething.so\n"})
        before = self.files()
        for subcommand in ("enable", "disable"):
            self.assertIn("isn't Grus", self.grus(subcommand, status=1))
        self.assertEqual(self.files(), before)

    def test_says_what_to_do_without_a_folder(self):
        self.folder /= "missing"
        self.assertIn("install an OpenCL driver", self.grus("enable", status=1))

    @unittest.skipIf(os.geteuid() != 0, "needs root, to become somebody else")
    def test_says_that_it_needs_root(self):
        self.folder.chmod(0o755)
        nobody = 65534
        done = subprocess.run([GRUS, "enable", "--vendors-dir", self.folder], capture_output=True, text=True, check=False,
                              user=nobody, group=nobody, extra_groups=[])
        self.assertEqual(done.returncode, 1)
        self.assertIn("root", done.stderr)


if __name__ == "__main__":
    unittest.main()
