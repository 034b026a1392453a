#!/usr/bin/python3
"""How programs share a device of one server: each runs kernels of one length, all at the same time, and what they got done
is compared. Kernels are the same but for their length, so it is counted in their rounds.

Exit status: 0 all limits are kept, 1 one is missed, 2 couldn't measure, 3 the machine is too noisy to tell.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import common
import ratios
from overhead_report import verdict
from serving import Server

SLICE_MS = 10  # what others wait for who has the device; see ARCHITECTURE.md


def judged(row, text, limit, found):
    """The row with its limit, and whether the (middle, low, high) that was found keeps it."""
    return row | {"limit": text, "verdict": verdict(limit, found)}


def parts_of(times):
    """Of each (middle, low, high) its part of all, as far as that is known."""
    for index, (middle, low, high) in enumerate(times):
        others = [[one[column] for number, one in enumerate(times) if number != index] for column in range(3)]
        yield middle / (middle + sum(others[0])), low / (low + sum(others[2])), high / (high + sum(others[1]))


class Tenant:
    """A program that is ready, and runs when it is told to."""

    def __init__(self, grus, program, server, milliseconds, seconds, depth, others=()):
        self.process = subprocess.Popen(
            [grus, "run", "--gpu", server.address, "--", program, "--ms", str(milliseconds), "--seconds", str(seconds),
             "--depth", str(depth), *others], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise common.Problem(self.process.communicate()[1])

    def start(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        out, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise common.Problem(errors)
        return json.loads(out)


class Bench:
    def __init__(self, grus, program, vendors, seconds):
        self.grus, self.program, self.vendors, self.seconds = grus, program, vendors, seconds
        self.rates = {}
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GRUS_")}

    @functools.cache
    def devices(self):
        told = json.loads(subprocess.run([self.grus, "info", "--vendors", self.vendors, "--json"], capture_output=True, text=True,
                                         check=True, env=self.environment).stdout)
        return [device for platform in told["platforms"] for device in platform["devices"]]

    def device(self):
        """The first, which programs use."""
        return self.devices()[0]

    def serve(self, folder, *options):
        """Over plain TCP each session is a tenant; the other socket is for questions."""
        self.control = f"unix:{folder}/control"
        return Server(self.grus, "tcp", self.vendors, self.environment, ["--listen", self.control, *options],
                      errors=subprocess.DEVNULL)

    def tenants(self, *options):
        done = subprocess.run([self.grus, "tenants", self.control, "--json", *options], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise common.Problem(done.stderr)
        return json.loads(done.stdout)

    def run(self, lengths, weights=(), seconds=None, depths=None, shares=True, items=1):
        """What each got done."""
        with tempfile.TemporaryDirectory(prefix="grus-tenants-") as folder, self.serve(folder, *(['--shares'] if shares else [])) as server:
            programs, names = [], []
            for number, length in enumerate(lengths):
                depth = depths[number] if depths else max(3, int(300 / length))
                programs.append(Tenant(self.grus, self.program, server, length, seconds, depth,
                                       ["--items", str(items)] if number == 0 else []))
                if shares:
                    names += [one["tenant"] for one in self.tenants() if one["tenant"] not in names]
            for name, weight in zip(names, weights):
                self.tenants("--set", name, "--weight", str(weight))
            for program in programs:
                program.start()
            return [program.end() for program in programs]

    def rate(self, length):
        """(middle, least, most) of the rounds per second of kernels of that length, where nobody else is: short ones have more
        between them."""
        if length not in self.rates:
            seconds = max(2, 0.03 * length)
            found = sorted(self.run([length], seconds=seconds)[0]["rounds"] / seconds for _ in range(3))
            self.rates[length] = found[1], found[0], found[2]
        return self.rates[length]

    def shares(self, name, lengths, weights=(), seconds=0):
        """Of the device's time: what each got done, by the time that this takes alone. How far that differs from run to run is how
        well the shares are known."""
        seconds = max(seconds, self.seconds, 0.1 * max(lengths))  # 100 times the longest kernel
        done = self.run(lengths, weights, seconds)
        times = []
        for one, length in zip(done, lengths):
            middle, least, most = self.rate(length)
            times.append((one["rounds"] / middle, one["rounds"] / most, one["rounds"] / least))
        wanted = [100 * weight / sum(weights or [1] * len(lengths)) for weight in weights or [1] * len(lengths)]
        shares = [[100 * part for part in parts] for parts in parts_of(times)]

        def percent(values):
            return " / ".join(f"{value:.1f}" for value in values)

        row = {"name": name, "shares_percent": percent(middle for middle, _, _ in shares), "wanted": percent(wanted),
               "known_to": f"± {max(max(high - middle, middle - low) for middle, low, high in shares):.1f}",
               "used": f"{100 * sum(middle for middle, _, _ in times) / seconds:.1f} %"}
        if len(lengths) > 2:
            apart = [max(one[high] / two[low] for one in times for two in times if one is not two)
                     for high, low in ((0, 0), (1, 2), (2, 1))]
            return judged(row | {"apart_percent": round(100 * (apart[0] - 1), 1)}, "within 5 % of each other", ("<=", 1.05), apart)
        middle, low, high = shares[0]
        off = [abs(middle - wanted[0]), max(0, low - wanted[0], wanted[0] - high), max(high - wanted[0], wanted[0] - low)]
        return judged(row, f"{percent(wanted)} ± 3", ("<=", 3), off)

    def alone(self, length, turns, items=1):
        """Against a server that doesn't share, before and after, in turns; those two tell what equal things differ by."""
        against, equal = [], []
        for _ in range(turns):
            before, done, after = (self.run([length], seconds=max(1.5, 0.02 * length), shares=shares, items=items)[0]["rounds"]
                                   for shares in (False, True, False))
            against.append([ratios.log_ratio(done, before, after)])
            equal.append([ratios.log_ratio(after, before)])
        found, noise = ratios.interval(against), ratios.interval(equal)
        if turns < 3:  # of which nothing is known
            found = found[0], 0, float("inf")

        def text(interval):
            return f"{interval[0]:.4f} [{interval[1]:.4f}, {interval[2]:.4f}]"

        row = {"name": f"alone, {length} ms kernels{f' of {items} work-items' if items > 1 else ''}, against a server without --shares",
               "ratio": text(found), "without_against_itself": text(noise), "turns": turns}
        return judged(row, ">= 0.99", (">=", 0.99), found)

    def wait(self, length, splits=False):
        """Of short kernels, each waited for, beside long ones, which can be split if they have many work-items."""
        items = 262144 * length if splits else 1
        _, short = self.run([length, 1], seconds=max(5 * length / 1000, self.seconds), depths=[4, 1], items=items)
        row = {"name": f"1 ms kernels, one at a time, beside {length} ms kernels of {items} work-items", "p99_wait_ms": short["p99_wait_ms"],
               "longest_wait_ms": short["longest_wait_ms"], "median_wait_ms": short["ms_per_wait"]}
        bound = SLICE_MS + (0 if splits else length)
        return judged(row, f"p99 <= {bound} ms{'' if splits else ', a kernel and the slice'}", ("<=", bound), [short["p99_wait_ms"]] * 3)

    def swapping(self, mib=64, sessions=4, turns=3):
        """Sessions whose buffers are three times what the device has, all at once and in turn. Each has three quarters of it. Where
        the device works in host memory, it does as if it had its own."""
        device = self.device()
        own = {"GRUS_MEMORY": "own"} if device["memory"] == "shared with host" else {}
        if mib > 64 and own:
            return {"name": f"{sessions} sessions with three times {mib} MiB", "left_out": "the device has no memory of its own"}
        buffers = ["--mib", str(mib // 16), "--rounds", "3" if mib <= 64 else "1"]
        times = {"at once": [], "in turn": []}
        moved = []
        for _ in range(turns):
            for how, found in times.items():
                with tempfile.TemporaryDirectory(prefix="grus-tenants-") as folder:
                    audit = pathlib.Path(folder) / "audit"
                    with Server(self.grus, "tcp", self.vendors, self.environment | own,
                                ["--device-memory", f"{mib}MiB", "--audit", str(audit)], errors=subprocess.DEVNULL) as server:
                        start = time.monotonic()
                        running = []
                        for _ in range(sessions):
                            running.append(subprocess.Popen(
                                [self.grus, "run", "--gpu", server.address, "--", self.program.parent / "remote_swapped", *buffers],
                                stdout=subprocess.DEVNULL, env=self.environment | own))
                            if how == "in turn":
                                running[-1].wait()
                        if any([one.wait() for one in running]):
                            raise common.Problem("a session failed")
                        found.append(time.monotonic() - start)
                    ends = [json.loads(line) for line in audit.read_text().splitlines()]
                    if how == "at once":
                        moved.append(sum(end.get("moved_out_bytes", 0) for end in ends) >> 20)
        at_once, in_turn = (statistics.median(times[how]) for how in times)
        return {"name": f"{sessions} sessions with three times the device's memory, of which they may use {mib} MiB",
                "at_once_s": round(at_once, 2), "in_turn_s": round(in_turn, 2), "ratio": round(at_once / in_turn, 2),
                "moved_out_mib": statistics.median(moved), "turns": turns, "limit": "all results right", "verdict": "ok"}

    def two(self, workload, turns):
        """Its time alone and beside another of it, from the first to the last call. The first turn warms up."""
        alone, beside = [], []
        for _ in range(turns + 1):
            for count, found in ((1, alone), (2, beside)):
                with tempfile.TemporaryDirectory(prefix="grus-tenants-") as folder, self.serve(folder, "--shares") as server:
                    running = [subprocess.Popen([self.grus, "run", "--gpu", server.address, "--",
                                                 self.program.parents[1] / "workloads" / workload, "--no-verify"],
                                                stdout=subprocess.PIPE, text=True, env=self.environment) for _ in range(count)]
                    said = [one.communicate()[0] for one in running]
                    if any(one.returncode for one in running):
                        raise common.Problem(f"{workload} failed")
                    found.append([json.loads(text.splitlines()[0])["seconds"]["calls"] * 1000 for text in said])
        first, second = zip(*beside[1:])
        each = sorted([*first, *second])
        one = statistics.median(spent for spent, in alone[1:])
        return {"name": f"{workload}, two at once", "each_ms": round(statistics.median(each), 1), "least": round(each[0], 1),
                "most": round(each[-1], 1), "alone_ms": round(one, 1), "ratio": round(statistics.median(each) / one, 2),
                "turns": turns} | ({"LoGV": "1696 ms each, 864 ms alone, 1.96"} if workload == "lud" else {})

    def places(self):
        """Of two devices, what a server is started with and its environment. A device is one core of the host, or a card."""
        if self.device()["type"] == "CPU":
            cores = sorted(os.sched_getaffinity(0))[:2]
            return [(["taskset", "-c", str(core)], {"POCL_MAX_PTHREAD_COUNT": "1"}) for core in cores]
        return [([], {"CUDA_VISIBLE_DEVICES": str(number)}) for number in range(min(2, len(self.devices())))]

    def apart(self, workload, seconds):
        """Two on one device; then the second goes to another, which is idle. What both do, in commands per second, against the
        first for itself at the beginning."""
        name = f"{workload}, two on one device, then one moved to an idle one"
        places = self.places()
        if len(places) < 2:
            return {"name": name, "left_out": "there is one device only, so none is idle"}
        with contextlib.ExitStack() as stack:
            environment = self.environment | places[0][1]
            servers = [stack.enter_context(Server(self.grus, "unix", self.vendors, self.environment | own, ["--shares"],
                                                  errors=subprocess.DEVNULL, before=before))
                       for before, own in places]
            programs, series, before = [], [], {}

            def start():
                programs.append(stack.enter_context(subprocess.Popen(
                    [self.grus, "run", "--gpu", servers[0].address, "--", self.program.parents[1] / "workloads" / workload,
                     "--seconds", str(6 * seconds), "--no-verify"], stdout=subprocess.PIPE, text=True, env=environment)))

            def look(until):
                """Speeds in steps of half a second, and their means."""
                found = []
                while time.monotonic() < until:
                    time.sleep(0.5)
                    now, speeds = {}, {}
                    for server in servers:
                        done = subprocess.run([self.grus, "ps", "--json", "--interval", "0", "--gpu", server.address],
                                              capture_output=True, text=True, check=True)
                        for one in json.loads(done.stdout)[0]["sessions"]:
                            now[one["session"]] = time.monotonic(), one["commands"]
                            then, count = before.get(one["session"], (0, 0))
                            if then:
                                process = one["peer"]["pid"]
                                speeds[process] = speeds.get(process, 0) + (one["commands"] - count) / (now[one["session"]][0] - then)
                    before.clear()
                    before.update(now)
                    found.append([speeds.get(program.pid, 0) for program in programs])
                series.extend(found)
                return [statistics.mean(column) for column in zip(*found[1:])]

            start()
            look(time.monotonic() + 2)  # its beginning
            alone, = look(time.monotonic() + seconds)
            start()
            look(time.monotonic() + 2)
            together = look(time.monotonic() + seconds)
            done = subprocess.run([self.grus, "move", str(programs[1].pid), "--to", servers[1].address, "--json"],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise common.Problem(done.stderr)
            moved, = json.loads(done.stdout)
            apart = look(time.monotonic() + seconds)
            for program in programs:
                program.communicate()
                if program.returncode != 0:
                    raise common.Problem(f"{workload} failed")

        def percent(speeds):
            return " / ".join(f"{100 * speed / alone:.0f} %" for speed in speeds)

        return {"name": name, "together": percent(together),
                "apart": percent(apart), "stop_ms": round(1000 * moved["stop_seconds"], 1),
                "over_time": "; ".join(percent(one) for one in series)}

    def greed(self, limit):
        with tempfile.TemporaryDirectory(prefix="grus-tenants-") as folder, \
                self.serve(folder, "--shares", "--time-limit", str(limit)) as server:
            greedy = Tenant(self.grus, self.program, server, 1, 1, 1, ["--endless"])
            good = Tenant(self.grus, self.program, server, 1, limit + 3, 4)
            greedy.start()
            time.sleep(1)
            good.start()
            start = time.monotonic()
            greedy.process.communicate()
            gone = time.monotonic() - start
            done = good.end()
        row = {"name": f"an endless kernel, limit {limit} s", "gone_after_s": round(gone, 3),
               "longest_gap_of_the_other_ms": done["longest_gap_ms"]}
        return judged(row, f"gone within {limit + 1} s", ("<=", limit + 1), [gone] * 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5, help="for each row, at least; default 5")
    parser.add_argument("--turns", type=int, default=7, help="of the comparison alone; default 7")
    parser.add_argument("--only", action="append", choices=["shares", "alone", "wait", "swapping", "two", "apart", "greed"],
                        help="that part; may be repeated; default all")
    parser.add_argument("--vendors", default=f"{common.DEFAULT_VENDORS}/pocl.icd", help="drivers that the server offers")
    parser.add_argument("--grus", help="the command; default the build's")
    parser.add_argument("--program", help="remote_tenant; default the build's")
    parser.add_argument("--device", default="PoCL", help="what to call the device")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    chosen = parser.parse_args()
    grus = common.program("grus", chosen.grus)
    program = pathlib.Path(chosen.program or pathlib.Path(grus).parent / "tests" / "remote_tenant")
    with common.vendors_folder(chosen.vendors) as folder:
        bench = Bench(grus, program, folder, chosen.seconds)
        parts = [
            (bench.shares, "1 ms and 1 ms kernels", [1, 1]), (bench.shares, "1 ms and 20 ms kernels", [1, 20]),
            (bench.shares, "0.2 ms and 50 ms kernels", [0.2, 50]), (bench.shares, "5 ms and 300 ms kernels", [5, 300]), (bench.shares, "weights 1 and 3", [1, 5], [1, 3]),
            (bench.shares, "eight, of 0.5 ms to 4 ms", [0.5 * number for number in range(1, 9)], (), 15),
            (bench.alone, 0.1, chosen.turns), (bench.alone, 1, chosen.turns), (bench.alone, 10, chosen.turns),
            (bench.alone, 200, 3, 64 * 2112),  # that a large GPU runs all at once
            (bench.wait, 5000), (bench.wait, 50), (bench.wait, 500, True), (bench.wait, 5000, True),
            (bench.swapping,), (bench.swapping, 3072, 4, 1), (bench.two, "lud", 3), (bench.apart, "cnn", 6), (bench.greed, 2)]
        rows, about = [], common.about(chosen.device, {"grus": common.first_line([grus, "--version"])})
        for part, *arguments in parts:
            if chosen.only and part.__name__ not in chosen.only:
                continue
            rows.append(part(*arguments))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
            if chosen.json:  # at once: all of it takes long
                chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    verdicts = {row.get("verdict") for row in rows}
    return 1 if "MISSED" in verdicts else 3 if "unclear" in verdicts else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
