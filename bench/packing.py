#!/usr/bin/python3
"""What `grus run --compress` does for a program whose server is behind a slow link: transfers of data that can be packed
(the same number again and again) and of data that can't (all numbers), with it and without, in turns. The link is between
two network namespaces of this host, and shaped. Needs root.

Exit status: 0 measured, 2 couldn't measure.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import common
from link import Link
from serving import Server

CASES = {"saxpy": "200 times: write 1 MiB of one number, launch, read 1 MiB", "write_bulk": "write 64 MiB of all numbers"}
WAYS = {"as it is": {}, "packed": {"GRUS_COMPRESS": "1"}}


def seconds(text, case):
    row = json.loads(text.splitlines()[-1])
    return row["value"] / 1e6 if case == "saxpy" else (64 << 20) / row["value"] / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="default 5")
    parser.add_argument("--vendors", default=f"{common.DEFAULT_VENDORS}/pocl.icd", help="drivers that the server offers")
    parser.add_argument("--grus", help="the command; default the build's")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    chosen = parser.parse_args()
    grus = common.program("grus", chosen.grus)
    overhead = pathlib.Path(grus).parent / "overhead"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRUS_")}
    rows = []
    with common.vendors_folder(chosen.vendors) as folder, Link() as link:
        for gigabits in (0.1, 1, 10):
            link.shape(gigabits * 1e9)
            with Server(grus, "tcp", folder, environment, before=link.at_server, host=Link.SERVER,
                        errors=subprocess.DEVNULL) as server:
                for case, about in CASES.items():
                    if case == "saxpy" and gigabits < 1:
                        continue  # half a minute each
                    taken = {way: [] for way in WAYS}
                    for _ in range(chosen.turns):
                        for way, more in WAYS.items():
                            done = subprocess.run([*link.at_client, grus, "run", "--gpu", server.address, "--", overhead,
                                                   "--case", case, "--samples", "1", "--bulk-mib", "64"],
                                                  capture_output=True, text=True, env=environment | more, check=False)
                            if done.returncode != 0:
                                raise common.Problem(done.stderr)
                            taken[way].append(seconds(done.stdout, case))
                    plain, packed = (taken[way] for way in WAYS)
                    ratios = sorted(one / other for one, other in zip(packed, plain))
                    rows.append({"name": about, "Gbit_per_s": gigabits, "as_it_is_s": statistics.median(plain),
                                 "packed_s": statistics.median(packed), "ratio": statistics.median(ratios),
                                 "least": ratios[0], "most": ratios[-1], "turns": chosen.turns})
                    print(", ".join(f"{key} {value if isinstance(value, (str, int)) else common.short(value)}"
                                    for key, value in rows[-1].items()), flush=True)
    if chosen.json:
        about = common.about("PoCL", {"grus": common.first_line([grus, "--version"])})
        chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
