#!/usr/bin/python3
"""Runs a test on this machine's device and records how it went, for docs/RESULTS.md.

Exit status: 0 it passed, 1 it failed.
"""

import argparse
import json
import pathlib
import sys
import unittest

import common


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test", type=pathlib.Path, help="a file of unittest's")
    parser.add_argument("--device", default="", help="what to call the device")
    parser.add_argument("--json", type=pathlib.Path, required=True, help="write the rows there")
    chosen = parser.parse_args()
    sys.path.insert(0, str(chosen.test.resolve().parent))
    suite = unittest.defaultTestLoader.loadTestsFromName(chosen.test.stem)
    tests = {test.id(): "passed" for case in suite for test in case}
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for test, _ in result.failures + result.errors:
        tests[getattr(test, "test_case", test).id()] = "FAILED"  # of a subtest the test
    for test, why in result.skipped:
        tests[test.id()] = f"skipped: {why}"
    rows = [{"test": name.rpartition(".test_")[2].replace("_", " "), "result": text} for name, text in tests.items()]
    about = common.about(chosen.device, {"grus": common.first_line([common.PROGRAMS / "grus", "--version"])})
    chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
