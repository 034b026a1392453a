"""What LoGV's authors measured of migrations: a program in a guest that is moved, live, to another QEMU while it runs, and the
same program in a guest that isn't.

The guest's own PoCL stands in for the card's OpenCL. The program tells the host every 10 ms of its kernels and of a clock of 1 ms,
so a gap that is seen from the host is known to 10 ms; the guest's own clock may stand while QEMU stops the guest.

The delay is what the program lost: the time for which it ran no kernels, or fewer than usual. What it ran more doesn't count: at the
proxy of a guest that is emulated it is far faster than in the guest, and would be done before it is back.
"""

import bisect
import itertools
import math
import statistics

import figure6
import guests
from harness.papers import LOGV_MOVES
from vm_test import Beats, step_times

# lud as in the paper, with 39 MiB, and mmul with 12 of 48, so that there are some kernels per second; where the guest is emulated, so
# small that there are, too.
SIZES = {"kvm": {"mmul": 1024, "lud": 3200}, "tcg": {"mmul": 48, "lud": 128}}
UNMOVED_S = 10
PER_BIN = 5  # kernels, usually; fewer than that are a delay


class Turn:
    """A run of the program, and the migration that was made meanwhile, if any."""

    def __init__(self, beats, said, outcome):
        self.checksum = said.strip().splitlines()[-1]
        self.beats, self.outcome = beats, outcome
        self.seconds = beats[-1][0] - beats[0][0]
        self.rate = max(1, beats[-1][1] - beats[0][1]) / self.seconds  # kernels per second

    def during(self):
        """What was told while it was moved, and a little later: that is when a gap at the end is known."""
        return [one for one in self.beats if self.outcome["began"] <= one[0] <= self.ended() + 1]

    def ended(self):
        return self.outcome["began"] + max(step["start"] + step["seconds"] for step in self.outcome["steps"])

    def kernel_gap(self):
        """(from, to): the longest time without a kernel, as seen from here."""
        seen = [(when, kernels) for when, kernels, *_ in self.during()]
        done = seen[:1] + [two for one, two in itertools.pairwise(seen) if one[1] != two[1]]
        return max(((one[0], two[0]) for one, two in itertools.pairwise(done)), key=lambda gap: gap[1] - gap[0])

    def lost_s(self, rate):
        """While it was moved, against so many kernels per second; or of all of it."""
        start, end = (self.outcome["began"], self.ended()) if self.outcome else (self.beats[0][0], self.beats[-1][0])
        times = [when for when, *_ in self.beats]
        width = PER_BIN / rate
        done = [self.beats[max(0, bisect.bisect_right(times, start + number * width) - 1)][1]
                for number in range(math.ceil((end - start) / width) + 1)]
        return sum(width * max(0, 1 - (two - one) / PER_BIN) for one, two in itertools.pairwise(done))

    def kernels_by_step(self):
        def count(start, end):
            inside = [kernels for when, kernels, *_ in self.beats if start <= when <= end]
            return inside[-1] - inside[0] if inside else 0
        return "; ".join(f"{step}: {count(*times)}" for step, times in step_times(self.outcome).items())

    def steps_of_gap(self):
        """Which steps of the migration it lies in, and for how long."""
        start, end = self.kernel_gap()
        parts = []
        for step in self.outcome["steps"]:
            began = self.outcome["began"] + step["start"]
            shared = min(end, began + step["seconds"]) - max(start, began)
            if shared >= 0.005:
                parts.append(f"{step['side']}: {step['step']} ({1e3 * shared:.0f} ms)")
        return "; ".join(parts)


def clock_gap(beats):
    """(seen from the host, by the guest's clock), in ms"""
    return 1e3 * max(two[0] - one[0] for one, two in itertools.pairwise(beats)), 1e3 * max(one[4] for one in beats)


def run(beats, guest, words, move=None):
    """One run in the guest, moved once it has begun if there is a `move`, which says where the guest is then and how it went."""
    name = words.split()[0]
    beats.forget(name)
    guest.shell.run(f"(grus run -- {words} --no-verify --tell --beats {guests.HOST}:{beats.port} 2>&1; echo ended) > /run/{name}.out "
                    "< /dev/null & true")
    beats.wait_for(name, 1)
    guest, outcome = move(guest) if move else (guest, None)
    if outcome and "ended" in guest.shell.run(f"cat /run/{name}.out"):
        raise guests.Failed(f"{name} ended before its guest had been moved: it needs a longer --length")
    said = guest.shell.run(f"until grep -q ended /run/{name}.out; do usleep 100000; done; grep -v ended /run/{name}.out", 600)
    return guest, Turn(beats.of(name), said, outcome)


class Told(Beats):
    def forget(self, name):
        with self._changed:
            self._seen.pop(name, None)


def row_of(name, size, unmoved, moved):
    checksums = {turn.checksum for turn in [*unmoved, *moved]}
    if len(checksums) != 1:
        raise guests.Failed(f"{name}: results differ: {checksums}")
    worst = max(moved, key=lambda turn: turn.kernel_gap()[1] - turn.kernel_gap()[0])
    gaps = [clock_gap(turn.during()) for turn in moved]
    usual = statistics.fmean(turn.rate for turn in unmoved)

    def middle(values):
        return statistics.median(list(values))

    delay, downtime, whole = LOGV_MOVES[name]
    return {
        "name": name, "size": size, "turns": len(moved), "kernels_per_second": usual,
        "delay_ms": 1e3 * middle(turn.lost_s(usual) for turn in moved), "LoGV_delay_ms": delay,
        "so_much_unmoved_ms": 1e3 * middle(turn.lost_s(usual) * (one.ended() - one.outcome["began"]) / turn.seconds
                                           for turn, one in zip(unmoved, moved)),
        "clock_gap_ms": middle(seen for seen, _ in gaps), "by_the_guests_clock_ms": middle(by_guest for _, by_guest in gaps),
        "LoGV_clock_gap_ms": downtime, "unmoved_clock_gap_ms": middle(clock_gap(turn.beats)[0] for turn in unmoved),
        "kernel_gap_ms": 1e3 * middle(turn.kernel_gap()[1] - turn.kernel_gap()[0] for turn in moved),
        "QEMU_stopped_ms": middle(turn.outcome["migration"]["downtime_ms"] for turn in moved),
        "migration_ms": 1e3 * middle(turn.ended() - turn.outcome["began"] for turn in moved), "LoGV_migration_ms": whole,
        "longest_kernel_gap_in": worst.steps_of_gap(), "kernels_by_step": worst.kernels_by_step()}


def measure(options, vendor, running):
    guests.enter_network()
    beats = Told()
    with figure6.opened(vendor, running, list(LOGV_MOVES)) as (guest, another, file):
        def move(source):
            destination = another()
            outcome = figure6.migrate(source, destination, file)
            source.close()
            return destination, outcome

        for name in LOGV_MOVES:
            size = SIZES[guests.acceleration()][name]
            program = f"{name} --size {size}"
            figure6.build_kernels(guest, program)
            unmoved, moved = [], []
            for _ in range(1 if options.quick else options.rounds):
                unmoved.append(run(beats, guest, f"{program} --seconds {UNMOVED_S}")[1])
                guest, turn = run(beats, guest, f"{program} --seconds {options.length}", move)
                moved.append(turn)
            yield row_of(name, size, unmoved, moved)
