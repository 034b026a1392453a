#!/usr/bin/python3
"""What Grus costs in time: `overhead` natively (A), through Grus, and natively again (B), compared.

A round starts the three as fresh processes. For each case they then take turns of a few milliseconds, in an order that
rotates, so that whatever slows the machine slows all three. A turn's value is the median of its samples. The ratio is
the interquartile mean, over all turns, of Grus's value against the geometric mean of A's and B's of the same turn; its
95% interval is a bootstrap over rounds, and over turns within them. Rounds are many and short, because two processes of
the same program differ more than two turns of one. B against A shows what the machine does to two equal things.

Exit status: 0 all limits are kept, 1 one is missed, 2 couldn't measure, 3 an interval is too wide to tell.
"""

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time

import common
import overhead_report
from bare import PARTS, BareTcp
from harness import modes

TURN_TIMEOUT_S = 180


class Broken(Exception):
    pass


class Runner:
    """One `overhead --serve` process."""

    def __init__(self, mode, command, environment):
        self.mode = mode
        self.errors = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would stop a talkative process
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, start_new_session=True)
        self.device = self._lines(1)[0]

    def _kill(self):
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)  # with what `grus run` may have started

    def _lines(self, count):
        watchdog = threading.Timer(TURN_TIMEOUT_S, self._kill)
        watchdog.start()
        try:
            lines = [self.process.stdout.readline() for _ in range(count)]
        finally:
            watchdog.cancel()
        if not all(lines):
            self._kill()
            self.process.wait()
            self.errors.seek(0)
            raise Broken(f"{self.mode}: {self.errors.read()[-2000:].strip() or 'ended without a word, or hung'}")
        return [json.loads(line) for line in lines]

    def ask(self, line, answers):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it is gone: reading says so
        return self._lines(answers)

    def stop(self):
        try:
            self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._kill()
            self.process.communicate()
        except (OSError, ValueError):
            self._kill()


class Comparison:
    def __init__(self, options, cases, commands, bare=None):
        self.bare = bare  # beside what goes over TCP
        self.options = options
        self.cases = cases
        self.commands = commands  # mode: (command, environment)
        self.rounds = []  # each {case: [{mode: value}]}
        self.broken = {}  # case: why
        self.device = None
        self.seconds = {}  # case: of each turn so far
        self.orders = itertools.cycle(itertools.permutations(commands))
        self.progress = common.Progress()
        self.start = time.monotonic()

    def runners(self):
        started = {}
        for mode, (command, environment) in self.commands.items():
            try:
                started[mode] = Runner(mode, command + self.same_sizes(), environment)
            except Broken as broken:
                raise common.Problem(str(broken)) from None
            self.device = self.device or started[mode].device
            if started[mode].device["device"] != self.device["device"]:
                raise common.Problem(f"{mode} measures {started[mode].device['device']}, not {self.device['device']}")
        return started

    def same_sizes(self):
        if not self.device:
            return []
        return ["--bulk-mib", str(self.device["bulk_mib"]), "--large-maps", str(self.device["large_maps"])]

    def turns(self, case):
        return min(2, self.options.turns) if overhead_report.is_bulk(case) else self.options.turns

    def left_s(self, case_index, turn):
        """Remaining turns at the speed each case had so far, or the average of the others."""
        mean = {name: statistics.fmean(values) for name, values in self.seconds.items()}
        usual = statistics.fmean(mean.values()) if mean else 1.0
        cost = [self.turns(case) * mean.get(case["case"], usual) for case in self.cases]
        here = cost[case_index] * (1 - turn / self.turns(self.cases[case_index]))
        left = (self.options.rounds - len(self.rounds) - 1) * sum(cost) + here + sum(cost[case_index + 1:])
        return left if self.deadline() is None else min(left, self.deadline() - time.monotonic())

    def deadline(self):
        return self.start + self.options.minutes * 60 if self.options.minutes else None

    def out_of_time(self):
        """Another round like the ones so far wouldn't end in time."""
        if not self.rounds or self.deadline() is None:
            return False
        now = time.monotonic()
        return now + (now - self.start) / len(self.rounds) > self.deadline()

    def measure_case(self, runners, index, case):
        """One case in one round; a case that ran out of time keeps the turns it had."""
        values = []
        for turn in range(self.turns(case)):
            if self.deadline() and time.monotonic() > self.deadline():
                break
            began = time.monotonic()
            taken = {}
            for mode in next(self.orders):
                samples = 3 if overhead_report.is_bulk(case) else self.options.samples
                answers = runners[mode].ask(f"{case['case']} {samples}", samples)
                taken[mode] = statistics.median(answer["value"] for answer in answers)
            if self.bare and case["case"] in PARTS:
                taken[BareTcp.MODE] = statistics.median(self.bare.measure(case["case"]) for _ in range(3))
            values.append(taken)
            self.seconds.setdefault(case["case"], []).append(time.monotonic() - began)
            text = f"round {len(self.rounds) + 1} of {self.options.rounds}, {case['case']}"
            self.progress.show(text, self.left_s(index, turn + 1))
        for runner in runners.values():
            runner.ask("close", 1)
        return values

    def measure(self):
        for _ in range(self.options.rounds):
            if self.out_of_time() or len(self.broken) == len(self.cases):
                break
            runners = self.runners()
            taken = {}
            for index, case in enumerate(self.cases):
                if case["case"] in self.broken:
                    continue
                try:
                    taken[case["case"]] = self.measure_case(runners, index, case)
                except Broken as broken:
                    self.broken[case["case"]] = str(broken)
                    for runner in runners.values():
                        runner.stop()
                    runners = self.runners()
            for runner in runners.values():
                runner.stop()
            self.rounds.append(taken)
        self.progress.done()


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="", help="part of the platform's name")
    parser.add_argument("--device", default="", help="part of the device's name")
    parser.add_argument("--vendors", default=common.DEFAULT_VENDORS, help="ICD file of the real driver, or a folder of them")
    parser.add_argument("--case", action="append", help="only this case, again for more")
    parser.add_argument("--quick", action="store_true", help="3 short rounds: shows that it works, decides nothing")
    parser.add_argument("--rounds", type=int, help="default 20")
    parser.add_argument("--turns", type=int, help="per case and round, bulk cases at most 2; default 3")
    parser.add_argument("--samples", type=int, default=8, help="of each turn, bulk cases 3; default 8")
    parser.add_argument("--minutes", type=float, help="start no round that would end later")
    parser.add_argument("--native-only", action="store_true", help="without Grus: what two equal things differ by")
    parser.add_argument("--mode", action="append", choices=["grus", *modes.SERVED],
                        help="again for more; default grus, in this process; unix and tcp start a server on this host")
    parser.add_argument("--json", help="write the result there too")
    parser.add_argument("--overhead", help="the program; default build/bin/overhead")
    parser.add_argument("--grus", help="the command; default build/bin/grus")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 20)
    chosen.turns = chosen.turns or (2 if chosen.quick else 3)
    chosen.mode = [] if chosen.native_only else chosen.mode or ["grus"]
    return chosen


def chosen_cases(overhead, names):
    listed = subprocess.run([overhead, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    every = [json.loads(line) for line in listed]
    unknown = set(names or []) - {case["case"] for case in every}
    if unknown:
        raise common.Problem(f"no such case: {', '.join(sorted(unknown))}")
    return [case for case in every if not names or case["case"] in names]


def names_of_cases(chosen):
    """What is asked for. Through a server that is, by default, what has a limit there: a map of a large buffer in the
    program's own memory moves it twice. The channel's own round trip belongs to it."""
    if not set(chosen.mode) & set(modes.SERVED):
        return chosen.case
    return [*(chosen.case or overhead_report.SERVED["unix"]), overhead_report.ROUND_TRIP]


def main():
    chosen = options()
    overhead = common.program("overhead", chosen.overhead)
    with common.vendors_folder(chosen.vendors) as folder:
        serve = [str(overhead), "--serve", "--platform", chosen.platform, "--device", chosen.device]
        with modes.chosen_modes(chosen.mode, folder, chosen.grus) as (ways, _):
            commands = {"native A": (serve, ways[0].environment), "native B": (serve, ways[0].environment)}
            commands |= {way.name: (way.prefix + serve, way.environment) for way in ways[1:-1]}
            with BareTcp() if "tcp" in chosen.mode else contextlib.nullcontext() as bare:
                comparison = Comparison(chosen, chosen_cases(overhead, names_of_cases(chosen)), commands, bare)
                comparison.measure()
    device = comparison.device
    versions = {"driver": f"{device['platform']} {device['driver']}", "platform": " ".join(device["platform_version"].split())}
    if chosen.mode:
        versions["grus"] = common.first_line([common.program("grus", chosen.grus), "--version"])
    about = common.about(device["device"], versions)
    rows = overhead_report.rows_of(comparison, about)
    print(f"{device['platform']}, {device['device']}, driver {device['driver']}; bulk transfers of {device['bulk_mib']} MiB; "
          f"{len(comparison.rounds)} rounds\n")
    print(overhead_report.printed(rows))
    for name, why in comparison.broken.items():
        print(f"\n{name}: {why}")
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")
    verdicts = {row.get("verdict") for row in rows}
    return 1 if verdicts & {"MISSED", "BROKEN"} else 3 if "unclear" in verdicts else 0


if __name__ == "__main__":
    common.main(main)
