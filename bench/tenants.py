#!/usr/bin/python3
"""How programs share a device of one server: each runs kernels of one length, all at the same time, and what they got done
is compared. Kernels are the same but for their length, so it is counted in their rounds.

Exit status: 0 measured, 2 couldn't measure.
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

import common
from serving import Server


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
        """Rounds per second of kernels of that length, where nobody else is: short ones have more between them."""
        if length not in self.rates:
            self.rates[length] = statistics.median(self.run([length], seconds=2)[0]["rounds"] / 2 for _ in range(3))
        return self.rates[length]

    def shares(self, name, lengths, weights=(), seconds=0):
        """Of the device's time: what each got done, by the time that this takes alone."""
        seconds = max(seconds, self.seconds, 0.1 * max(lengths))  # 100 times the longest kernel
        done = self.run(lengths, weights, seconds)
        times = [one["rounds"] / self.rate(length) for one, length in zip(done, lengths)]

        def percent(values):
            return " / ".join(f"{100 * value / sum(values):.1f}" for value in values)

        return {"name": name, "shares_percent": percent(times), "wanted": percent(weights or [1] * len(lengths)),
                "used": f"{100 * sum(times) / seconds:.1f} %"}

    def alone(self, length, turns, items=1):
        """Against a server that doesn't share, in turns."""
        ratios = []
        for _ in range(turns):
            shared, = self.run([length], seconds=max(1.5, 0.02 * length), items=items)
            plain, = self.run([length], seconds=max(1.5, 0.02 * length), shares=False, items=items)
            ratios.append(shared["rounds"] / plain["rounds"])
        return {"name": f"alone, {length} ms kernels{f' of {items} work-items' if items > 1 else ''}, against a server without --shares", "ratio": round(statistics.median(ratios), 4),
                "least": round(min(ratios), 4), "most": round(max(ratios), 4), "turns": turns}

    def wait(self, length, splits=False):
        """Of short kernels, each waited for, beside long ones, which can be split if they have many work-items."""
        items = 262144 * length if splits else 1
        _, short = self.run([length, 1], seconds=max(5 * length / 1000, self.seconds), depths=[4, 1], items=items)
        return {"name": f"1 ms kernels, one at a time, beside {length} ms kernels of {items} work-items", "p99_wait_ms": short["p99_wait_ms"],
                "longest_wait_ms": short["longest_wait_ms"], "median_wait_ms": short["ms_per_wait"]}

    def swapping(self, sessions=4, turns=3):
        """Sessions whose buffers are three times what the device has, all at once and in turn. Each has 48 MiB of 64."""
        times = {"at once": [], "in turn": []}
        moved = []
        for _ in range(turns):
            for how, found in times.items():
                with tempfile.TemporaryDirectory(prefix="grus-tenants-") as folder:
                    audit = pathlib.Path(folder) / "audit"
                    with Server(self.grus, "tcp", self.vendors, self.environment | {"GRUS_MEMORY": "own"},
                                ["--device-memory", "64MiB", "--audit", str(audit)], errors=subprocess.DEVNULL) as server:
                        start = time.monotonic()
                        running = []
                        for _ in range(sessions):
                            running.append(subprocess.Popen(
                                [self.grus, "run", "--gpu", server.address, "--", self.program.parent / "remote_swapped"],
                                stdout=subprocess.DEVNULL, env=self.environment | {"GRUS_MEMORY": "own"}))
                            if how == "in turn":
                                running[-1].wait()
                        if any([one.wait() for one in running]):
                            raise common.Problem("a session failed")
                        found.append(time.monotonic() - start)
                    ends = [json.loads(line) for line in audit.read_text().splitlines()]
                    if how == "at once":
                        moved.append(sum(end.get("moved_out_bytes", 0) for end in ends) >> 20)
        at_once, in_turn = (statistics.median(times[how]) for how in times)
        return {"name": f"{sessions} sessions with three times the device's memory", "at_once_s": round(at_once, 2),
                "in_turn_s": round(in_turn, 2), "ratio": round(at_once / in_turn, 2),
                "moved_out_mib": statistics.median(moved), "turns": turns}

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

    def apart(self, workload, seconds):
        """Two on one device; then the second goes to another, which is idle. A device is one core of the host. What both do,
        in commands per second, against the first for itself at the beginning."""
        cores = sorted(os.sched_getaffinity(0))[:2]
        if len(cores) < 2:
            raise common.Problem("two devices take two cores")
        environment = self.environment | {"POCL_MAX_PTHREAD_COUNT": "1"}
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(Server(self.grus, "unix", self.vendors, environment, ["--shares"],
                                                  errors=subprocess.DEVNULL, before=["taskset", "-c", str(core)]))
                       for core in cores]
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

        return {"name": f"{workload}, two on one device, then one moved to an idle one", "together": percent(together),
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
        return {"name": f"an endless kernel, limit {limit} s", "gone_after_s": round(gone, 3),
                "longest_gap_of_the_other_ms": done["longest_gap_ms"]}


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
            (bench.shares, "0.2 ms and 50 ms kernels", [0.2, 50]), (bench.shares, "weights 1 and 3", [1, 5], [1, 3]),
            (bench.shares, "eight, of 0.5 ms to 4 ms", [0.5 * number for number in range(1, 9)], (), 15),
            (bench.alone, 0.1, chosen.turns), (bench.alone, 1, chosen.turns), (bench.alone, 10, chosen.turns),
            (bench.alone, 200, 3, 64 * 2112),  # that a large GPU runs all at once
            (bench.wait, 5000), (bench.wait, 50), (bench.wait, 500, True), (bench.wait, 5000, True),
            (bench.swapping,), (bench.two, "lud", 3), (bench.apart, "cnn", 6), (bench.greed, 2)]
        rows = []
        for part, *arguments in parts:
            if chosen.only and part.__name__ not in chosen.only:
                continue
            rows.append(part(*arguments))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if chosen.json:
        about = common.about(chosen.device, {"grus": common.first_line([grus, "--version"])})
        chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
