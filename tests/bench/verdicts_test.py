#!/usr/bin/python3
"""What the benchmarks make of numbers: limits that are kept, missed, or that noise doesn't let one tell."""

import os
import pathlib
import sys
import types
import unittest

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(os.environ["GRUS_SOURCE"]) / "bench"))

import in_guest  # noqa: E402
import overhead_report  # noqa: E402
import results  # noqa: E402
import tenants  # noqa: E402
from guest_moves import Turn, clock_gap  # noqa: E402


class ServedTest(unittest.TestCase):
    def verdicts(self, unix, cpu=False):
        turn = {"native A": 5.0, "native B": 5.0, "grus": 20.0, "unix": unix}
        comparison = types.SimpleNamespace(cases=[{"case": "write_bulk", "about": "write", "unit": "GB/s"}], broken={},
                                           device={"bulk_mib": 1024, "cpu": cpu}, rounds=[{"write_bulk": [turn, turn]}])
        rows = overhead_report.rows_of(comparison, {"device": "a card"})
        return {row["mode"]: row["verdict"] for row in rows if row["mode"].startswith("unix")}

    def test_a_server_is_compared_with_grus_in_the_program_too(self):
        self.assertEqual(self.verdicts(17.0), {"unix": "ok", "unix against grus": "ok"})
        self.assertEqual(self.verdicts(12.0), {"unix": "ok", "unix against grus": "MISSED"})
        self.assertEqual(self.verdicts(12.0, cpu=True), {"unix": "ok"})


class Numbers(tenants.Bench):
    """Whose programs do as they are told."""

    def __init__(self, done, alone=(100, 100, 100)):
        super().__init__("", "", "", 1)
        self.done, self.rate = done, lambda length: alone

    def run(self, *_, **options):
        return [{"rounds": one, "p99_wait_ms": one, "longest_wait_ms": one, "ms_per_wait": 1} for one in self.done]


class TenantsTest(unittest.TestCase):
    def test_shares_of_two(self):
        def verdict(first, second, *alone, weights=()):
            return Numbers([first, second], *alone).shares("two", [1, 1], weights)["verdict"]
        self.assertEqual(verdict(520, 480), "ok")
        self.assertEqual(verdict(560, 440), "MISSED")
        self.assertEqual(verdict(240, 760, weights=[1, 3]), "ok")
        self.assertEqual(verdict(500, 500, weights=[1, 3]), "MISSED")
        self.assertEqual(verdict(520, 480, (100, 90, 110)), "unclear")
        self.assertEqual(verdict(800, 200, (100, 90, 110)), "MISSED")

    def test_shares_of_eight(self):
        def verdict(least, *alone):
            return Numbers([100] * 7 + [least], *alone).shares("eight", [1] * 8)["verdict"]
        self.assertEqual((verdict(97), verdict(90), verdict(97, (100, 97, 103))), ("ok", "MISSED", "unclear"))

    def test_one_alone(self):
        numbers = iter([100, 100, 100] * 3 + [100, 90, 100] * 3 + [100, 90, 100, 100, 110, 100, 100, 90, 100] + [100, 100, 100])
        bench = Numbers([])
        bench.run = lambda *_, **options: [{"rounds": next(numbers)}]
        self.assertEqual([bench.alone(1, turns)["verdict"] for turns in (3, 3, 3, 1)], ["ok", "MISSED", "unclear", "unclear"])

    def test_waits(self):
        def verdict(wait, *arguments):
            return Numbers([0, wait]).wait(*arguments)["verdict"]
        self.assertEqual((verdict(9.9, 500, True), verdict(10.1, 500, True)), ("ok", "MISSED"))
        self.assertEqual((verdict(509, 500), verdict(511, 500)), ("ok", "MISSED"))

    def test_they_are_in_the_table(self):
        shown = results.tenants([{"name": "two", "shares": "50 / 50", "limit": "50 ± 3", "verdict": "ok"}, {"name": "apart", "left_out": "why"}])
        self.assertRegex(shown, r"\| two +\| shares 50 / 50 +\| 50 ± 3 +\| +ok \|")
        self.assertRegex(shown, r"\| apart +\| left out why")


class GuestTest(unittest.TestCase):
    def test_overhead_that_grows_with_the_data(self):
        def verdict(few, many):
            by_options = {millions: {"host": [{"calls": 1.0}] * 3, "ivshmem:": [{"calls": one} for one in times]}
                          for millions, times in ((2, few), (16, many))}
            return in_guest.growth(by_options)["verdict"]
        self.assertEqual(verdict([1.3, 1.3, 1.3], [1.1, 1.1, 1.1]), "ok")
        self.assertEqual(verdict([1.1, 1.1, 1.1], [1.3, 1.3, 1.3]), "MISSED")
        self.assertEqual(verdict([1.0, 1.1, 1.3], [1.0, 1.2, 1.4]), "unclear")

    def test_what_a_migration_costs(self):
        """20 kernels per second, none from 4 s to 5 s, then 40."""
        def done(when):
            return int(20 * when if when < 4 else 80 if when < 5 else 80 + 40 * (when - 5))
        beats = [(when / 100, done(when / 100), when, 0.0, 0.001) for when in range(1001)]
        steps = [{"side": "host", "step": "programs leave", "start": 0, "seconds": 1.5},
                 {"side": "QEMU", "step": "active", "start": 1.5, "seconds": 2}]
        turn = Turn(beats, "checksum 1", {"began": 3.0, "steps": steps})
        self.assertAlmostEqual(turn.lost_s(20), 1, places=1)
        self.assertEqual(turn.kernels_by_step(), "programs leave: 20; active: 60")
        start, end = turn.kernel_gap()
        self.assertAlmostEqual(end - start, 1, delta=0.1)
        self.assertRegex(turn.steps_of_gap(), r"^host: programs leave \(5\d\d ms\); QEMU: active \(5\d\d ms\)$")
        self.assertAlmostEqual(clock_gap(turn.during())[0], 10)


if __name__ == "__main__":
    unittest.main()
