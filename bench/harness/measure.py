"""Runs workloads in every mode, in turns, and keeps what each run said. A result that differs between modes is an error,
never a number."""

import json
import os
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass, field

import common

TIMEOUT_S = 900
# A round is so much longer than what its runs take when they are measured for the estimate.
MARGIN = 1.05


class Broken(Exception):
    """A run that failed; nothing of its workload counts."""


@dataclass
class Run:
    seconds: dict
    checksum: str
    device: str
    figures: dict  # whatever else the workload reported


@dataclass
class Measured:
    """One workload: for each round the runs by mode."""
    workload: object
    rounds: list = field(default_factory=list)
    verified: dict = field(default_factory=dict)  # the runs that compared their results with the CPU's
    broken: str = ""

    def values(self, mode, of):
        return [of(taken[mode]) for taken in self.rounds if mode in taken]


def run_once(workload, mode, arguments):
    command = [*mode.prefix, *arguments]
    process = subprocess.Popen(command, env=mode.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Broken(f"{mode.name}: {workload.name} didn't end within {TIMEOUT_S} s") from None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    if process.returncode:
        raise Broken(f"{mode.name}: {workload.name} ended with {process.returncode}: {err.strip()[-1000:]}")
    lines = out.strip().splitlines()
    if len(lines) < 2 or not lines[-1].startswith("checksum "):
        raise Broken(f"{mode.name}: {workload.name} printed no checksum")
    told = json.loads(lines[-2])
    known = {"workload", "device", "seconds", "verified"}
    return Run(told["seconds"], lines[-1].split()[1], told["device"],
               {name: value for name, value in told.items() if name not in known})


def check_same(workload, runs):
    """All modes, and all runs, must give the same bytes."""
    sums = {}
    for mode, run in runs:
        sums.setdefault(run.checksum, []).append(mode)
    if len(sums) > 1:
        said = "; ".join(f"{', '.join(dict.fromkeys(modes))}: {checksum}" for checksum, modes in sums.items())
        raise Broken(f"WRONG RESULT: {workload.name} gives different results: {said}")


class Measurement:
    def __init__(self, workloads, modes, arguments, rounds, minutes):
        self.modes = modes
        self.arguments = arguments  # of a workload: its command line
        self.rounds = rounds
        self.deadline = time.monotonic() + minutes * 60 if minutes else None
        self.measured = [Measured(workload) for workload in workloads]
        self.seconds = {}  # of a round, by workload
        self.progress = common.Progress()

    def _round(self, measured, modes):
        workload = measured.workload
        # Verified once; from then on the same checksum says as much.
        extra = ["--no-verify"] if measured.verified else []
        taken = {}
        for mode in modes:
            taken[mode.name] = run_once(workload, mode, [*self.arguments(workload), *extra])
        earlier = [(mode, run) for old in [measured.verified, *measured.rounds] for mode, run in old.items()]
        check_same(workload, [*earlier, *taken.items()])
        return taken

    def _try(self, measured, modes, keep):
        start = time.monotonic()
        try:
            taken = self._round(measured, modes)
            if keep:
                measured.rounds.append(taken)
            else:
                measured.verified = taken
        except Broken as broken:
            measured.broken = str(broken)
            print(broken, flush=True)
        self.seconds[measured.workload.name] = time.monotonic() - start

    def warm_up(self):
        """A run in each mode that doesn't count: it fills the drivers' caches, and says how long the rest will take."""
        for measured in self.measured:
            self.progress.show(f"warming up: {measured.workload.name}")
            self._try(measured, self.modes, keep=False)
        self.progress.done()

    def estimate_s(self):
        return MARGIN * self.rounds * sum(self.seconds[m.workload.name] for m in self.measured if not m.broken)

    def measure(self):
        for number in range(self.rounds):
            modes = self.modes[number % len(self.modes):] + self.modes[:number % len(self.modes)]
            for index, measured in enumerate(self.measured):
                if measured.broken:
                    continue
                usual = self.seconds[measured.workload.name]
                if self.deadline and number > 0 and time.monotonic() + usual > self.deadline:
                    continue
                self.progress.show(f"round {number + 1} of {self.rounds}, {measured.workload.name}", self._left_s(number, index))
                self._try(measured, modes, keep=True)
            if self.deadline and time.monotonic() > self.deadline:
                break
        self.progress.done()

    def _left_s(self, number, index):
        per_round = [0 if m.broken else self.seconds[m.workload.name] for m in self.measured]
        left = sum(per_round[index:]) + (self.rounds - number - 1) * sum(per_round)
        return min(left, self.deadline - time.monotonic()) if self.deadline else left


def spread(values):
    """(median, low, high): the middle half of the values."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), quarters[0], quarters[2]
