#!/usr/bin/python3
"""gMig's own measures alone, as `bench/run --paper gmig` makes them after the workloads: fingerprints by the host and by the
device, samples, stops over links of 5, 7.5 and 10 Gbit/s (shaped where this may be done, else at a pace that Grus keeps
itself), and what is in the stops of each workload.
"""

import argparse
import json
import pathlib
import sys

import common
from harness import gmig, papers
from harness.workloads import ALL


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="", help="part of the platform's name")
    parser.add_argument("--device", default="", help="part of the device's name")
    parser.add_argument("--vendors", default=common.DEFAULT_VENDORS, help="ICD file of the real driver, or a folder of them")
    parser.add_argument("--quick", action="store_true", help="small and few: decides nothing")
    parser.add_argument("--grus", help="the command; default the build's")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    chosen = parser.parse_args()
    with common.vendors_folder(chosen.vendors) as folder:
        device, rows = gmig.measure(chosen, folder, ALL)
    print(f"{device}\n\n{papers.text('gmig', rows)}")
    if chosen.json:
        about = common.about(device, {"grus": common.first_line([common.program("grus", chosen.grus), "--version"])})
        chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
