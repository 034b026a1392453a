#!/usr/bin/python3
"""`grus run` and `grus info`: what programs are started with, and how they end."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["GRUS_BUILD"])
GRUS = BUILD / "bin" / "grus"
GRUS_FOLDER = BUILD / "lib" / "grus-vendors"
SANITIZED = bool(os.environ.get("GRUS_SANITIZE"))  # a sanitized libgrus.so can't be loaded into other programs
SYSTEM_VENDORS = "/etc/OpenCL/vendors"
LOADER = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")


def clean_environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRUS_") and name not in LOADER}
    return {**kept, **{name: str(value) for name, value in more.items()}}


def grus(*arguments, environment=None):
    return subprocess.run([GRUS, *arguments], capture_output=True, text=True, check=False,
                          env=environment or clean_environment())


def environment_of_program(*options, **environment):
    done = grus("run", *options, "--", "env", "-0", environment=clean_environment(**environment))
    assert done.returncode == 0, done.stderr
    return dict(variable.split("=", 1) for variable in done.stdout.split("\0") if variable)


class EnvironmentTest(unittest.TestCase):
    def test_loaders_see_only_grus(self):
        seen = environment_of_program(OCL_ICD_FILENAMES="libother.so")
        self.assertEqual(seen["OCL_ICD_VENDORS"], f"{GRUS_FOLDER}/")  # some loaders need the slash
        self.assertNotIn("OCL_ICD_FILENAMES", seen)
        self.assertEqual(os.listdir(GRUS_FOLDER), ["grus.icd"])

    def test_grus_sees_the_vendors_that_the_program_would(self):
        self.assertEqual(environment_of_program()["GRUS_VENDORS"], SYSTEM_VENDORS)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(environment_of_program(OCL_ICD_VENDORS=folder)["GRUS_VENDORS"], folder)
            self.assertEqual(environment_of_program(OCL_ICD_VENDORS="/else", GRUS_VENDORS=folder)["GRUS_VENDORS"], folder)
            self.assertEqual(environment_of_program("--vendors", folder, GRUS_VENDORS="/else")["GRUS_VENDORS"], folder)

    def test_within_itself(self):
        done = grus("run", "--vendors", "/etc", "--", GRUS, "run", "--", "sh", "-c", "echo $GRUS_VENDORS")
        self.assertEqual(done.stdout.strip(), "/etc")
        self.assertEqual(environment_of_program(OCL_ICD_VENDORS=GRUS_FOLDER)["GRUS_VENDORS"], SYSTEM_VENDORS)
        self.assertEqual(environment_of_program(OCL_ICD_VENDORS=GRUS_FOLDER / "grus.icd")["GRUS_VENDORS"], SYSTEM_VENDORS)

    def test_options_become_variables(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report"
            seen = environment_of_program("--present-as", "gpu", "--log=info", "--report", os.path.relpath(report))
            self.assertTrue(os.path.isabs(seen["GRUS_REPORT"]) and os.path.samefile(seen["GRUS_REPORT"], report))
        self.assertEqual((seen["GRUS_PRESENT_AS"], seen["GRUS_LOG"]), ("gpu", "info"))


class EndTest(unittest.TestCase):
    def check_status(self, status, *arguments):
        self.assertEqual(grus("run", *arguments).returncode, status, arguments)

    def test_ends_as_the_program_does(self):
        for options in ([], ["--objects"]):
            self.check_status(0, *options, "--", "true")
            self.check_status(7, *options, "--", "sh", "-c", "exit 7")
            self.check_status(-signal.SIGKILL, *options, "--", "sh", "-c", "kill -KILL $$")
            self.check_status(127, *options, "--", "/no/such/program")
            self.check_status(126, *options, "--", "/etc/passwd")

    def test_usage(self):
        self.check_status(2)
        self.check_status(2, "--no-such-option", "--", "true")
        self.check_status(2, "--vendors", "/no/such/folder", "--", "true")
        self.check_status(2, "--present-as", "toaster", "--", "true")
        self.assertEqual(grus().returncode, 2)
        self.assertEqual(grus("dance").returncode, 2)
        self.assertEqual(grus("info", "--", "true").returncode, 2)

    def test_programs_keep_their_options(self):
        self.assertEqual(grus("run", "--", "echo", "--help", "--", "-x").stdout, "--help -- -x\n")
        self.assertEqual(grus("run", "echo", "--vendors", "--", "x").stdout, "--vendors -- x\n")
        self.assertEqual(grus("run", "echo", "info").stdout, "info\n")

    def test_help_and_version(self):
        for arguments in (["--help"], ["run", "--help"], ["info", "--help"], ["enable", "--help"], ["disable", "--help"]):
            done = grus(*arguments)
            self.assertEqual(done.returncode, 0)
            self.assertIn("Examples:", done.stdout)
        self.assertRegex(grus("--version").stdout, r"^grus \d+\.\d+\.\d+\n$")

    def test_hands_signals_on(self):
        script = 'trap "exit 5" TERM; echo ready; while :; do sleep 0.05; done'
        with subprocess.Popen([GRUS, "run", "--objects", "--", "sh", "-c", script], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, env=clean_environment()) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 5)


@unittest.skipIf(SANITIZED, "a sanitized libgrus.so can't be loaded into other programs")
@unittest.skipUnless(shutil.which("clinfo"), "clinfo isn't installed")
class ReportTest(unittest.TestCase):
    VENDORS = os.environ["GRUS_VENDORS"]

    def test_shows_calls_and_objects(self):
        done = grus("run", "--vendors", self.VENDORS, "--objects", "--", "clinfo")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("clGetDeviceInfo", done.stderr)
        self.assertRegex(done.stderr, r"context +\d")

    def test_reports_each_process_that_used_opencl(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report"
            report.write_text("left from an earlier run\n")
            done = grus("run", "--vendors", self.VENDORS, "--json", "--report", report, "--", "sh", "-c",
                        "clinfo -l && clinfo -l && true")
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = [json.loads(line) for line in report.read_text().splitlines()]
        self.assertEqual(len(lines), 2)
        self.assertEqual(len({line["pid"] for line in lines}), 2)
        for line in lines:
            self.assertGreater(line["calls"]["clGetDeviceIDs"], 0)
        shown = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        self.assertEqual(shown, lines)

    def test_no_calls(self):
        self.assertIn("no process", grus("run", "--objects", "--", "true").stderr)


class InfoTest(unittest.TestCase):
    VENDORS = os.environ["GRUS_VENDORS"]

    def test_for_scripts(self):
        done = grus("info", "--json", "--vendors", self.VENDORS)
        self.assertEqual(done.returncode, 0, done.stderr)
        devices = [device for platform in json.loads(done.stdout)["platforms"] for device in platform["devices"]]
        self.assertTrue(devices)
        for device in devices:
            self.assertTrue(device["name"])
            self.assertGreater(device["memory_bytes"], 0)
            self.assertTrue(device["movable"])
            self.assertTrue(all(entry["why"] for entry in device["not_offered"]))
            self.assertTrue(device["driver"]["library"])

    @unittest.skipIf(SANITIZED, "a sanitized libgrus.so can't be loaded into other programs")
    @unittest.skipUnless(shutil.which("clinfo"), "clinfo isn't installed")
    def test_lists_what_clinfo_lists(self):
        clinfo = subprocess.run(["clinfo", "-l"], capture_output=True, text=True, check=True,
                                env=clean_environment(OCL_ICD_VENDORS=self.VENDORS)).stdout
        info = grus("info", "--vendors", self.VENDORS).stdout
        lines = [line for line in info.splitlines() if line.startswith(("Platform", " `--", " +--"))]
        self.assertEqual(lines, clinfo.splitlines())

    def test_without_a_driver(self):
        with tempfile.TemporaryDirectory() as folder:
            done = grus("info", "--vendors", folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no OpenCL device", done.stderr)


if __name__ == "__main__":
    unittest.main()
