#!/usr/bin/python3
"""What Grus costs in instructions: each of the hottest calls, counted by callgrind natively and through Grus.

Only instructions of the thread that calls count, and only between the call's start and its return; first calls, which
load and build things, are made before. Two counts are taken:

  own         what Grus's library executes, and what libraries other than the vendor's execute for it (malloc, memcpy,
              locks). It hardly varies, and is held against the limit.
  difference  the call through Grus less the call natively, the vendor's work included in both: it also shows what Grus
              makes the vendor do more, or less. Waiting for the device makes it vary; how far apart the native counts
              are is printed as +-. It counts against the limit as far as it is above it by more than that.

What Grus's other threads execute meanwhile is listed apart.

Exit status: 0 all limits are kept, 1 one is missed, 2 couldn't measure.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import callgrind
import common

LIMITS = {"set_arg_value": 150, "set_arg_buffer": 150, "launch_3_args": 600, "read_4k": 400}
WHAT = {
    "set_arg_value": "clSetKernelArg, 4 byte value",
    "set_arg_buffer": "clSetKernelArg, buffer",
    "launch": "launch, same arguments",
    "launch_3_args": "3 clSetKernelArg and launch",
    "launch_after_3_args": "... the launch alone",
    "launch_event": "launch with event, and its release",
    "event_info": "clGetEventInfo, status",
    "read_4k": "blocking read of 4 KiB",
    "write_4k": "blocking write of 4 KiB",
    "map": "blocking map of 64 KiB",
    "unmap": "unmap of 64 KiB",
    "create_buffer": "clCreateBuffer and release",
    "finish_empty": "clFinish, empty queue",
    "work_group_info": "clGetKernelWorkGroupInfo",
}
BLOCKS = 4
CALLS = 256
TIMEOUT_S = 600


class Counter:
    """Runs count_calls under callgrind, in an environment of its own."""

    def __init__(self, command, environment, vendors):
        self.command = command
        self.environment = environment
        self.vendors = tuple(name.split(".so")[0] for name in vendors)
        self.described = None

    def count(self, call):
        with tempfile.TemporaryDirectory(prefix="callgrind-") as folder:
            self._run(call, folder)
            profiles = callgrind.profiles(folder)
        blocks = [profile for profile in profiles if profile.trigger == f"Client Request: {call}"]
        if len(blocks) != BLOCKS:
            raise common.Problem(f"callgrind counted {len(blocks)} blocks of {call} instead of {BLOCKS}")
        others = [profile for profile in profiles if profile.thread > 1 and profile not in blocks]
        # Other threads are dumped once, at the end: with the uncounted block before the first.
        return {
            "total": statistics.fmean(profile.total for profile in blocks) / CALLS,
            "own": statistics.fmean(profile.own_of("libgrus") for profile in blocks) / CALLS,
            "for_it": statistics.fmean(profile.called_by("libgrus", self.vendors) for profile in blocks) / CALLS,
            "other_threads": sum(profile.own_of("libgrus") for profile in others) / (CALLS * (BLOCKS + 1)),
        }

    def _run(self, call, folder):
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes",
                    "--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={folder}/out"]
        command = [*self.command, "--call", call, "--calls", str(CALLS), "--blocks", str(BLOCKS)]
        try:
            done = subprocess.run(valgrind + command, env=self.environment, capture_output=True, text=True,
                                  timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise common.Problem(f"{call} didn't end within {TIMEOUT_S} s under callgrind") from None
        if done.returncode:
            raise common.Problem(f"{call} failed under callgrind with {done.returncode}: {done.stderr.strip()[-2000:]}")
        self.described = done.stdout.splitlines()[:3]


def row_of(call, native, grus, about):
    """One call's result, from the counts of several processes each."""
    def middle(counts, key):
        return statistics.median(count[key] for count in counts)
    totals = [count["total"] for count in native]
    row = {"name": call, "what": WHAT[call], "unit": "instructions", "device": about["device"], "runs": len(native),
           "native": middle(native, "total"), "native_apart": max(totals) - min(totals), "about": about}
    if not grus:
        return row
    row |= {"grus": middle(grus, "total"), "difference": middle(grus, "total") - row["native"],
            "own": middle(grus, "own") + middle(grus, "for_it"), "own_in_others": middle(grus, "for_it"),
            "other_threads": middle(grus, "other_threads")}
    if call in LIMITS:
        kept = row["own"] <= LIMITS[call] and row["difference"] - row["native_apart"] <= LIMITS[call]
        row |= {"limit": LIMITS[call], "verdict": "ok" if kept else "MISSED"}
    return row


def printed(rows):
    def number(row, key):
        return f"{row[key]:.0f}" if key in row else "-"
    columns = {"native": "native", "native_apart": "+-", "grus": "grus", "difference": "difference", "own": "own",
               "own_in_others": "(in libc ...)", "other_threads": "other threads", "limit": "limit"}
    return common.table(["call", *columns.values(), "verdict"],
                        [[row["what"], *(number(row, key) for key in columns), row.get("verdict", "")] for row in rows])


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="Portable", help="part of the platform's name; default PoCL's")
    parser.add_argument("--vendors", default=f"{common.DEFAULT_VENDORS}/pocl.icd", help="ICD file of the real driver")
    parser.add_argument("--call", action="append", choices=list(WHAT), help="only this call, again for more")
    parser.add_argument("--runs", type=int, default=3, help="processes for each call; default 3")
    parser.add_argument("--native-only", action="store_true", help="without Grus")
    parser.add_argument("--json", help="write the result there too")
    parser.add_argument("--count_calls", help="the program; default build/bin/count_calls")
    parser.add_argument("--libgrus", type=pathlib.Path, default=common.BUILD / "lib" / "libgrus.so",
                        help="Grus's library; default build/lib/libgrus.so")
    chosen = parser.parse_args()
    if chosen.runs < 2:
        parser.error("--runs takes 2 or more: one doesn't tell how far two are apart")
    return chosen


def measure(chosen, native, grus):
    progress = common.Progress()
    calls = chosen.call or list(WHAT)
    counted = {}
    for done, call in enumerate(calls):
        spent = time.monotonic() - progress.start
        progress.show(f"{call}, {done} of {len(calls)} calls done", spent / done * (len(calls) - done) if done else None)
        counted[call] = ([], [])
        for _ in range(chosen.runs):
            for counts, counter in zip(counted[call], (native, grus)):
                if counter:
                    counts.append(counter.count(call))
    progress.done()
    return counted


def main():
    chosen = options()
    if not shutil.which("valgrind"):
        raise common.Problem("valgrind isn't installed")
    program = [str(common.program("count_calls", chosen.count_calls)), "--platform", chosen.platform]
    with common.vendors_folder(chosen.vendors) as folder, tempfile.TemporaryDirectory(prefix="instructions-") as made:
        scratch = pathlib.Path(made)
        (scratch / "cache").mkdir()
        # Under valgrind the CPU looks like an older one: PoCL's code for it gets a cache of its own. Symbols are bound at
        # load time, so that looking them up isn't counted.
        environment = common.native_environment(folder) | {"POCL_CACHE_DIR": str(scratch / "cache"), "LD_BIND_NOW": "1"}
        vendors = common.vendor_libraries(folder)
        native = Counter(program, environment, vendors)
        grus = None
        if not chosen.native_only:
            if not chosen.libgrus.is_file():
                raise common.Problem(f"{chosen.libgrus} isn't there: run make first, or name it with --libgrus")
            (scratch / "grus").mkdir()
            (scratch / "grus" / "grus.icd").write_text(f"{chosen.libgrus.resolve()}\n", encoding="utf-8")
            through = {"OCL_ICD_VENDORS": str(scratch / "grus"), "GRUS_VENDORS": str(folder)}
            grus = Counter(program, environment | through, vendors)
        counted = measure(chosen, native, grus)
    platform, device, driver = native.described
    versions = {"driver": f"{platform} {driver}", "valgrind": common.first_line(["valgrind", "--version"])}
    if grus:
        versions["grus"] = common.first_line([common.BUILD / "bin" / "grus", "--version"])
    about = common.about(device, versions)
    rows = [row_of(call, *counts, about) for call, counts in counted.items()]
    print(f"{platform}, {device}, driver {driver}; instructions per call on the calling thread, mean of {BLOCKS * CALLS} "
          f"calls, median of {chosen.runs} processes\n")
    print(printed(rows))
    print("\nown is what Grus executes, apart from the vendor's library; it is what the limit is for (see --help)")
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row.get("verdict") == "MISSED" for row in rows) else 0


if __name__ == "__main__":
    common.main(main)
