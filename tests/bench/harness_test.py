#!/usr/bin/python3
"""What the harness of the workloads must notice: results that differ, runs that fail, modes that aren't there."""

import contextlib
import json
import os
import pathlib
import shlex
import socket
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["GRUS_BUILD"])
SOURCE = pathlib.Path(os.environ["GRUS_SOURCE"])
FLIP = BUILD / "lib" / "tests" / "libflip_bit.so"
LOWEST_BIT = 0  # of a float: the program's own check lets it pass
EXPONENT_BIT = 30


class Harness(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="bench-")))

    def run_harness(self, *options):
        environment = {name: value for name, value in os.environ.items() if name != "OCL_ICD_VENDORS"}
        return subprocess.run([SOURCE / "bench" / "run", "mmul", "--quick", "--rounds", "1", "--platform", "Portable",
                               "--vendors", os.environ["GRUS_VENDORS"], *options],
                              capture_output=True, text=True, check=False, env=environment)

    def grus_that_flips(self, bit):
        """A `grus` in front of the real one that changes what the program reads."""
        wrapper = self.folder / "grus"
        grus = shlex.quote(str(BUILD / "bin" / "grus"))
        wrapper.write_text(f"#!/bin/sh\nexport FLIP_BIT={bit} LD_PRELOAD={shlex.quote(str(FLIP))}\nexec {grus} \"$@\"\n")
        wrapper.chmod(0o755)
        return wrapper


class HarnessTest(Harness):
    def test_the_same_results_pass(self):
        result = self.folder / "rows.json"
        done = self.run_harness("--json", result)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = json.loads(result.read_text())
        self.assertEqual([row["mode"] for row in rows], ["native", "grus", "native again"])
        self.assertEqual(len({row["checksum"] for row in rows}), 1)
        for row in rows:
            self.assertLessEqual({"name", "mode", "device", "unit", "median", "low", "high", "runs", "ratio"}, row.keys())

    def test_one_flipped_bit_is_a_failure_that_names_the_workload(self):
        done = self.run_harness("--grus", self.grus_that_flips(LOWEST_BIT))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("WRONG RESULT: mmul gives different results", done.stdout)

    def test_a_result_that_the_program_itself_rejects_is_one_too(self):
        done = self.run_harness("--grus", self.grus_that_flips(EXPONENT_BIT))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("grus: mmul ended with 1", done.stdout)
        self.assertIn("wrong result", done.stdout)

    def test_a_mode_that_is_not_there_is_named(self):
        done = self.run_harness("--mode", "vm", "--mode", "grus")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("mode vm is missing", done.stdout)

    def test_modes_with_a_server_give_the_same_results(self):
        done = self.run_harness("--mode", "unix", "--mode", "tcp")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "mmul +unix .*\nmmul +tcp ")

    def test_plots_are_written(self):
        done = self.run_harness("--plots", self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(b"<svg", (self.folder / "ratios.svg").read_bytes())
        self.assertTrue((self.folder / "ratios.png").read_bytes().startswith(b"\x89PNG"))

    def test_a_workload_tells_of_its_kernels(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as told:
            told.bind(("127.0.0.1", 0))
            environment = os.environ | {"OCL_ICD_VENDORS": os.environ["GRUS_VENDORS"]}
            subprocess.run([BUILD / "bin/workloads/lud", "--quick", "--iterations", "3", "--no-verify", "--beats",
                            f"127.0.0.1:{told.getsockname()[1]}"], stdout=subprocess.DEVNULL, check=True, env=environment)
            told.setblocking(False)  # all have come
            counts = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    name, kernels, *_ = told.recv(500).decode().split()
                    self.assertEqual(name, "lud")
                    counts.append(int(kernels))
        self.assertEqual(counts, sorted(counts))
        self.assertAlmostEqual(counts[-1], 3 * (3 * 16 - 2), delta=16)  # a callback may come late

    def test_an_unknown_workload_is_an_error(self):
        done = self.run_harness("no-such")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no such workload: no-such", done.stderr)


class PapersTest(Harness):
    def test_what_gmig_measured(self):
        result = self.folder / "rows.json"
        done = self.run_harness("--paper", "gmig", "--json", result)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [row for row in json.loads(result.read_text()) if "table" in row]
        self.assertLessEqual({"fingerprints", "sampling", "links", "overlap"}, {row["table"] for row in rows})
        found = {row["kind"]: row for row in rows if row["table"] == "fingerprints"}
        self.assertEqual(found["xor256"]["found_swapped"], 0)
        self.assertEqual(found["xxh3"]["found_swapped"], found["xxh3"]["changed"])
        self.assertEqual(found["device, nothing changed"]["pages_changed"], 0)
        self.assertGreater(found["device, 1% changed, scattered"]["pages_changed"], 0)
        for row in rows:
            if row["table"] == "links":  # no link is faster than it is
                self.assertGreater(row["stop_ms"], 0.9 * row["ideal_ms"])

    def run_moves(self, *options):
        environment = {name: value for name, value in os.environ.items() if name != "OCL_ICD_VENDORS"}
        return subprocess.run([SOURCE / "bench" / "paper.py", "--quick", "--platform", "Portable", "--vendors",
                               os.environ["GRUS_VENDORS"], *options], capture_output=True, text=True, check=False, env=environment)

    def test_what_crane_moved(self):
        result = self.folder / "rows.json"
        done = self.run_moves("crane", "encoder", "--json", result)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        row, = json.loads(result.read_text())["rows"]
        self.assertGreater(row["objects"]["kernel"], 0)
        self.assertGreater(row["MiB"], row["image_MiB"])
        for way in ("there", "back"):
            self.assertGreater(row[way]["running_MiB"] + row[way]["stopped_MiB"], 0)
            self.assertLessEqual(row[way]["stop_s"], row[way]["move_s"])

    def test_what_logv_moved_is_shown_with_its_workloads(self):
        result = self.folder / "rows.json"
        done = self.run_harness("--paper", "logv", "--json", result)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [row for row in json.loads(result.read_text()) if row.get("table") == "moves"]
        self.assertEqual([(row["workload"], row["copying"]) for row in rows], [("mmul", "copied before"), ("mmul", "in the stop")])
        self.assertRegex(done.stdout, "mmul +in the stop .* 962.9")

    def test_a_moved_program_with_one_flipped_bit_is_a_failure(self):
        done = self.run_moves("logv", "mmul", "--grus", self.grus_that_flips(LOWEST_BIT))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("WRONG RESULT: mmul with", done.stdout)


if __name__ == "__main__":
    unittest.main()
