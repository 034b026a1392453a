#!/usr/bin/python3
"""What a paper measured besides workloads, alone, as `bench/run --paper` does it after the workloads.

crane  The encoder, the network (256 MB) and OpenMM, if it is installed, go to a server of this host and back while they run.
logv   mmul (48 MiB) and lud (39 MiB) go to a server over a link of 100 MB/s (shaped where this may be done, else at a pace that
       Grus keeps itself) while they compute: by how much longer they take, and how long they stop.
gmig   Fingerprints by the host and by the device, samples, stops over links of 5, 7.5 and 10 Gbit/s, and what is in the stops of
       each workload.

Exit status: 0 all results are right, 1 one is wrong or a program couldn't be moved, 2 couldn't measure.
"""

import argparse
import json
import pathlib
import sys

import common
from harness import gmig, paper_moves, papers
from harness.workloads import ALL


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", choices=[*paper_moves.PAPERS, "gmig"])
    parser.add_argument("workload", nargs="*", help="only these")
    parser.add_argument("--platform", default="", help="part of the platform's name")
    parser.add_argument("--device", default="", help="part of the device's name")
    parser.add_argument("--vendors", default=common.DEFAULT_VENDORS, help="ICD file of the real driver, or a folder of them")
    parser.add_argument("--quick", action="store_true", help="small and few: decides nothing")
    parser.add_argument("--grus", help="the command; default the build's")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    chosen = parser.parse_intermixed_args()
    with common.vendors_folder(chosen.vendors) as folder:
        if chosen.paper == "gmig":
            device, rows = gmig.measure(chosen, folder, [one for one in ALL if not chosen.workload or one.name in chosen.workload])
        else:
            device, rows = paper_moves.measure(chosen, folder, chosen.paper, chosen.workload or paper_moves.PAPERS[chosen.paper][0])
    print(f"{device}\n\n{papers.text(chosen.paper, rows)}")
    if chosen.json:
        about = common.about(device, {"grus": common.first_line([common.program("grus", chosen.grus), "--version"])})
        chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 1 if any("broken" in row for row in rows) else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
