#!/usr/bin/python3 -B
"""Programs in guests: on the host's device, against the same on the host, and while their guest is moved.

shared     virtio-CL's workloads through `virtio-serial:` and `ivshmem:`, BlackScholes with more and more options
guests     the same workloads through `ivshmem:` in one, two and three guests at the same time, and as many on the host
logv       LoGV's programs through `ivshmem:`, split as there
migration  LoGV's mmul and lud on the guest's own device, with and without a live migration of the guest meanwhile
figure6    Crane's: an encoder's frames per second on the guest's own device while the guest is moved, which is asked for after 8 s

But for the last two, what counts is the time in OpenCL calls, without the builds: all else is the guest's own, which is slow where it
is emulated. The same device, PoCL of this host, does the work every time, so all of them must come to the same results.

Exit status: 0 all limits are kept, 1 one is missed or it couldn't be measured, 3 the runs differ too much to tell.
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
import time
from concurrent.futures import ThreadPoolExecutor

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(SOURCE / "tests/vm"))

import common  # noqa: E402
import figure6  # noqa: E402
import guest_moves  # noqa: E402
import guests  # noqa: E402
import ratios  # noqa: E402
from guests import BUILD, GRUS, Guest, Tap  # noqa: E402
from harness.papers import BLACK_SCHOLES_IN_CALLS, LOGV_OVERHEAD, VIRTIO_CL_SECONDS  # noqa: E402
from harness.workloads import LOGV, OPTION_COUNTS, VIRTIO_CL  # noqa: E402

VENDOR = "/etc/OpenCL/vendors/pocl.icd"
BLACK_SCHOLES = "black_scholes"
THEIR_OPTIONS = 4  # millions, in virtio-CL's table
CHANNELS = ["virtio-serial:", "ivshmem:"]
SLOW_S = 30  # a channel that took longer with half of the options isn't asked again
COUNTED = 20  # rounds, each waited for
MOST_GUESTS = 3
LONGEST_S = 600  # of all workloads in several guests
MOST_OVERHEAD = 1.03  # with KVM
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

    def __init__(self, server, machines, taps):
        self.server, self.machines, self.taps = server, machines, taps

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

    def launches(self, words):
        """How many kernels a program enqueues."""
        with tempfile.NamedTemporaryFile() as report:
            subprocess.run([GRUS, "run", "--gpu", self.server, "--report", report.name, "--", BUILD / "bin/workloads" / words[0],
                            "--no-verify", *words[1:]], stdout=subprocess.DEVNULL, check=True)
            return json.load(report)["calls"]["clEnqueueNDRangeKernel"]

    def notifications(self, mode, words):
        """Kicks and interrupts of a program in the guest."""
        before = sum(self.taps[0].frames.values())
        self.run(mode, words, 0)
        return sum(self.taps[0].frames.values()) - before

    def measure(self, modes, words, rounds, at_once=1, warm_up=True):
        """By mode what runs took, as many as told at the same time."""
        times, checksums = {mode: [] for mode in modes}, set()
        with ThreadPoolExecutor(at_once) as threads:
            for number in range(0 if warm_up else 1, rounds + 1):  # the first builds the kernels
                for mode in modes:
                    for seconds, checksum in threads.map(lambda one, mode=mode: self.run(mode, words, one), range(at_once)):
                        checksums.add(checksum)
                        if number != 0:
                            times[mode].append(seconds)
        if len(checksums) != 1:
            raise RuntimeError(f"{words}: results differ: {checksums}")
        return times


@contextlib.contextmanager
def open_bench(programs, how_many, memory_mib, area_mib, counts=False):
    """If it counts what goes through guests' ports, those are slower."""
    guests.MEMORY_MIB, guests.AREA_MIB = memory_mib, area_mib
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="grus-bench-")))
        server = f"unix:{folder}/serve.sock"
        environment = {**os.environ, "POCL_CACHE_DIR": str(guests.CACHE / "pocl-of-bench")}
        serve = stack.enter_context(running(GRUS, "serve", "--listen", server, "--vendors", VENDOR, env=environment,
                                            stdout=subprocess.PIPE, text=True))
        serve.stdout.readline()
        guests.make_start(folder / "start", programs=[BUILD / "bin/workloads" / name for name in programs])
        machines, taps = [], []
        for number in range(how_many):
            guest = Guest(folder, f"guest{number}", folder / "start", area="master=off")
            stack.callback(guest.close)
            port = guest.folder / "gpus.sock"
            if counts:
                taps.append(Tap(port))
                stack.callback(taps[-1].close)
                port = taps[-1].path
            stack.enter_context(running(GRUS, "relay", "--port", f"unix:{port}", "--to", server, "--area", guest.area, "--slice",
                                        area_mib))
            guest.shell.wait_until_ready(120)
            guest.shell.run("grus relay --port /dev/virtio-ports/org.grus.gpu.0 > /run/relay.out 2>&1 < /dev/null & true")
            machines.append(guest)
        yield Bench(server, machines, taps)


def middle(runs, phase="calls"):
    return statistics.median(run[phase] for run in runs)


def compared(times):
    """Each mode's time in calls, and against the host's."""
    host = middle(times["host"])
    return {"host_s": host} | {f"{mode.strip(':')}_{what}": value for mode, runs in times.items() if mode != "host"
                               for what, value in (("s", middle(runs)), ("ratio", middle(runs) / host))}


def interval(times, mode):
    """(ratio, low, high) against the host's runs of the same rounds"""
    return ratios.interval([[ratios.log_ratio(one["calls"], host["calls"])] for one, host in zip(times[mode], times["host"])])


def notifications():
    """By workload and channel, per launch: what twice as many rounds need more, of small problems."""
    found = {}
    with open_bench(VIRTIO_CL, 1, 1024, 256, counts=True) as bench:
        for name in VIRTIO_CL:
            words = [[name, "--quick", "--tell", "--iterations", str(rounds)] for rounds in (COUNTED, 2 * COUNTED)]
            launches = [bench.launches(one) for one in words]
            for mode in CHANNELS:
                bench.run(mode, words[0], 0)  # builds the kernels
                few, many = (bench.notifications(mode, one) for one in words)
                key = f"{mode.strip(':')}_notifications_per_launch"
                found.setdefault(name, {})[key] = max(0.0, (many - few) / (launches[1] - launches[0]))
    return found


def mean_row(rows, published):
    """Of virtio-CL's seven. What must hold of it is for KVM."""
    row = {"name": f"mean of {len(rows)}"}
    for mode in CHANNELS:
        key = f"{mode.strip(':')}_ratio"
        if all(key in one for one in rows):
            row[key] = statistics.geometric_mean(one[key] for one in rows)
    row["virtio-CL_percent"] = published
    if guests.acceleration() == "kvm":
        row |= {"limit": f"ivshmem <= {MOST_OVERHEAD}", "verdict": "ok" if row["ivshmem_ratio"] <= MOST_OVERHEAD else "MISSED"}
    return row


def growth(by_options):
    """Whether BlackScholes's overhead grows with its options, through `ivshmem:`."""
    few, many = (interval(by_options[millions], "ivshmem:") for millions in (min(by_options), max(by_options)))
    verdict = "ok" if many[0] <= few[0] else "MISSED" if many[1] > few[2] else "unclear"
    return {"limit": f"ivshmem <= that of {min(by_options)} M", "verdict": verdict}


def shared(options):
    counted = notifications()
    rows = []
    with open_bench(VIRTIO_CL, 1, 2048, options.area) as bench:
        for name in (name for name in VIRTIO_CL if name != BLACK_SCHOLES):
            native, guest, *_ = VIRTIO_CL_SECONDS[name]
            times = bench.measure(["host", *CHANNELS], [name, *["--quick"] * options.quick], options.rounds)
            rows.append({"name": name, **compared(times), "virtio-CL_percent": 100 * (guest / native - 1), **counted[name]})
            yield rows[-1]
        by_options, slow = {}, set()
        for millions in OPTION_COUNTS:
            words = [BLACK_SCHOLES, "--size", f"{millions}000000", *(["--iterations", "4"] if options.quick else [])]
            modes = ["host", *(mode for mode in CHANNELS if mode not in slow)]
            by_options[millions] = times = bench.measure(modes, words, options.rounds)
            slow |= {mode for mode in CHANNELS if mode in times and middle(times[mode]) > SLOW_S}
            row = {"name": f"{BLACK_SCHOLES}, {millions} M options", **compared(times),
                   "virtio-CL_percent": BLACK_SCHOLES_IN_CALLS[millions], **counted[BLACK_SCHOLES]}
            if millions == THEIR_OPTIONS:
                rows.append(row)
            yield row | (growth(by_options) if millions == max(OPTION_COUNTS) else {})
    yield mean_row(rows, 12.0)


def several(options):
    until = time.monotonic() + LONGEST_S
    with open_bench(VIRTIO_CL, MOST_GUESTS, 512, options.area) as bench:
        for name in VIRTIO_CL:
            if time.monotonic() > until:
                yield {"name": name, "left_out": f"there are {LONGEST_S // 60} minutes for all of them"}
                continue
            words = [name, *["--quick"] * options.quick]
            for count in range(1, MOST_GUESTS + 1):
                times = bench.measure(["host", "ivshmem:"], words, options.rounds, count, warm_up=count == 1)
                yield {"name": name, "at_once": count} | compared(times)


def logv(options):
    overheads = []
    with open_bench(LOGV, 1, 2048, options.area) as bench:
        for name in LOGV:
            times = bench.measure(["host", "ivshmem:"], [name, *["--quick"] * options.quick], options.rounds)
            for mode, runs in times.items():
                row = {"name": name, "mode": mode} | {f"{phase}_ms": 1e3 * middle(runs, phase) for phase in PHASES}
                row["all_ms"] = 1e3 * middle(runs)
                if mode != "host":
                    overheads.append(middle(runs) / middle(times["host"]))
                    row |= {"overhead_percent": 100 * (overheads[-1] - 1), "published_percent": LOGV_OVERHEAD[name]}
                yield row
    yield {"name": "mean", "mode": "ivshmem:", "overhead_percent": 100 * (statistics.geometric_mean(overheads) - 1),
           "published_percent": statistics.fmean(LOGV_OVERHEAD.values())}


def frames(options):
    return figure6.measure(options, VENDOR, running)


def migration(options):
    return guest_moves.measure(options, VENDOR, running)


PARTS = {"shared": shared, "guests": several, "logv": logv, "migration": migration, "figure6": frames}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, default="shared", help="shared unless told")
    parser.add_argument("--rounds", type=int, default=3, help="of each; 3 unless told")
    parser.add_argument("--quick", action="store_true", help="small problems, and fewer rounds of BlackScholes's work")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    parser.add_argument("--area", type=int, default=1024, metavar="MIB", help="that guest and host share; 1024 unless told")
    parser.add_argument("--length", type=float, default=30, metavar="SECONDS",
                        help="of programs that are moved in part migration: more than that takes; 30 unless told")
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
    verdicts = {row.get("verdict") for row in rows}
    return 1 if "MISSED" in verdicts else 3 if "unclear" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
