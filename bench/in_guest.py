#!/usr/bin/python3 -B
"""Programs in guests: on the host's device, against the same on the host, and while their guest is moved.

shared   virtio-CL's workloads through `virtio-serial:` and `ivshmem:`
guests   some of them through `ivshmem:` in one, two and three guests at the same time, and as many on the host
logv     LoGV's programs through `ivshmem:`, split as there
figure6  Crane's: an encoder's frames per second on the guest's own device while the guest is moved, which is asked for after 8 s

But for the last, what counts is the time in OpenCL calls, without the builds: all else is the guest's own, which is slow where it
is emulated. The same device, PoCL of this host, does the work every time, so all of them must come to the same results.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(SOURCE / "tests/vm"))

import common  # noqa: E402
import figure6  # noqa: E402
import guests  # noqa: E402
from guests import BUILD, GRUS, Guest  # noqa: E402
from harness.papers import LOGV_OVERHEAD  # noqa: E402
from harness.workloads import LOGV  # noqa: E402

VENDOR = "/etc/OpenCL/vendors/pocl.icd"
WORKLOADS = ["fast_walsh", "mersenne_twister", "mmul", "scan_large_array", "convolution_separable", "scalar_product",
             "black_scholes"]
OPTIONS = [1, 2, 4, 8]  # millions, of BlackScholes
AT_ONCE = ["black_scholes", "scalar_product"]
MOST_GUESTS = 3
PHASES = ["init", "allocate", "to_device", "kernels", "from_device", "close"]  # of LoGV


@contextlib.contextmanager
def running(*command, **options):
    with subprocess.Popen([str(part) for part in command], **options) as child:
        try:
            yield child
        finally:
            child.terminate()


class Bench:
    """A server on this host, and guests whose programs use it, each with memory that it shares with the host."""

    def __init__(self, server, machines):
        self.server, self.machines = server, machines

    def run(self, mode, words, number):
        """The seconds of a program's phases, and its result's checksum."""
        if mode == "host":
            environment = {**os.environ, "OCL_ICD_VENDORS": f"{BUILD}/lib/grus-vendors", "GRUS_GPU": self.server}
            said = subprocess.run([BUILD / "bin/workloads" / words[0], "--no-verify", *words[1:]], text=True, check=True,
                                  env=environment, stdout=subprocess.PIPE).stdout
        else:
            command = f"{' '.join(words)} --no-verify"
            said = self.machines[number].shell.run(f"grus run --gpu {mode} -- /opt/grus/bin/{command} 2>&1", 600)
        if "no shared memory" in said:
            raise RuntimeError(said)
        result, checksum = said.strip().splitlines()[-2:]
        seconds = json.loads(result)["seconds"]
        return seconds | {"calls": seconds["calls"] - seconds["build"]}, checksum

    def measure(self, modes, words, rounds, at_once=1):
        """By mode what runs took, as many as told at the same time."""
        times, checksums = {mode: [] for mode in modes}, set()
        with ThreadPoolExecutor(at_once) as threads:
            for number in range(rounds + 1):  # the first builds the kernels
                for mode in modes:
                    for seconds, checksum in threads.map(lambda one, mode=mode: self.run(mode, words, one), range(at_once)):
                        checksums.add(checksum)
                        if number != 0:
                            times[mode].append(seconds)
        if len(checksums) != 1:
            raise RuntimeError(f"{words}: results differ: {checksums}")
        return times


@contextlib.contextmanager
def open_bench(programs, how_many, memory_mib, area_mib):
    guests.MEMORY_MIB, guests.AREA_MIB = memory_mib, area_mib
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="grus-bench-")))
        server = f"unix:{folder}/serve.sock"
        environment = {**os.environ, "POCL_CACHE_DIR": str(guests.CACHE / "pocl-of-bench")}
        serve = stack.enter_context(running(GRUS, "serve", "--listen", server, "--vendors", VENDOR, env=environment,
                                            stdout=subprocess.PIPE, text=True))
        serve.stdout.readline()
        guests.make_start(folder / "start", programs=[BUILD / "bin/workloads" / name for name in programs])
        machines = []
        for number in range(how_many):
            guest = Guest(folder, f"guest{number}", folder / "start", area="master=off")
            stack.callback(guest.close)
            stack.enter_context(running(GRUS, "relay", "--port", f"unix:{guest.folder}/gpus.sock", "--to", server,
                                        "--area", guest.area, "--slice", area_mib))
            guest.shell.wait_until_ready(120)
            guest.shell.run("grus relay --port /dev/virtio-ports/org.grus.gpu.0 > /run/relay.out 2>&1 < /dev/null & true")
            machines.append(guest)
        yield Bench(server, machines)


def middle(runs, phase="calls"):
    return statistics.median(run[phase] for run in runs)


def compared(times):
    """Each mode's time in calls, and against the host's."""
    host = middle(times["host"])
    return {"host_s": host} | {f"{mode.strip(':')}_{what}": value for mode, runs in times.items() if mode != "host"
                               for what, value in (("s", middle(runs)), ("ratio", middle(runs) / host))}


def shared(options):
    cases = [(name, [name, *["--quick"] * options.quick]) for name in WORKLOADS[:-1]]
    iterations = ["--iterations", "4"] if options.quick else []
    cases += [(f"black_scholes, {millions} M options", [WORKLOADS[-1], "--size", f"{millions}000000", *iterations])
              for millions in OPTIONS]
    with open_bench(WORKLOADS, 1, 2048, options.area) as bench:
        for name, words in cases:
            yield {"name": name} | compared(bench.measure(["host", "virtio-serial:", "ivshmem:"], words, options.rounds))


def several(options):
    with open_bench(AT_ONCE, MOST_GUESTS, 512, options.area) as bench:
        for name in AT_ONCE:
            words = [name, *["--quick"] * options.quick]
            for count in range(1, MOST_GUESTS + 1):
                times = bench.measure(["host", "ivshmem:"], words, options.rounds, count)
                yield {"name": name, "at_once": count} | compared(times)


def logv(options):
    with open_bench(LOGV, 1, 2048, options.area) as bench:
        for name in LOGV:
            times = bench.measure(["host", "ivshmem:"], [name, *["--quick"] * options.quick], options.rounds)
            for mode, runs in times.items():
                row = {"name": name, "mode": mode} | {f"{phase}_ms": 1e3 * middle(runs, phase) for phase in PHASES}
                row["all_ms"] = 1e3 * middle(runs)
                if mode != "host":
                    row |= {"overhead_percent": 100 * (middle(runs) / middle(times["host"]) - 1),
                            "published_percent": LOGV_OVERHEAD[name]}
                yield row


def frames(options):
    return figure6.measure(options, VENDOR, running)


PARTS = {"shared": shared, "guests": several, "logv": logv, "figure6": frames}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, default="shared", help="shared unless told")
    parser.add_argument("--rounds", type=int, default=3, help="of each; 3 unless told")
    parser.add_argument("--quick", action="store_true", help="small problems, and fewer rounds of BlackScholes's work")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    parser.add_argument("--area", type=int, default=1024, metavar="MIB", help="that guest and host share; 1024 unless told")
    options = parser.parse_args()
    guests.prepare()
    rows = []
    for row in PARTS[options.part](options):
        print(", ".join(f"{key.replace('_', ' ')} {common.short(value) if isinstance(value, float) else value}"
                        for key, value in row.items()), flush=True)
        rows.append(row)
    if options.json:
        about = common.about("PoCL", {"grus": common.first_line([GRUS, "--version"]), "acceleration": guests.acceleration()})
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
