"""From turns to ratios, intervals and verdicts: the numbers of overhead_run.py."""

import itertools
import math
import os
import random
import statistics

import common
import ratios
from bare import BareTcp

TIME = {"launch_pipelined", "launch_3_args", "read_4k", "map_64k", "map_16m", "map_use_host_ptr"}
CORES_FOR_STAGING = 16


# Through a server: ratios to native, and "+" for microseconds beside native and the channel's own round trip.
SERVED = {
    "unix": {"launch_synced": ("+", 5), "launch_pipelined": ("<=", 1.2), "launch_3_args": ("<=", 1.2), "read_4k": ("+", 5),
             "write_4k": ("+", 5), "write_1m": (">=", 0.8), "write_bulk": (">=", 0.85), "read_bulk": (">=", 0.85),
             "create_buffer": ("<=", 2), "event_chain": ("<=", 1.3), "saxpy": ("<=", 1.3)},
    "tcp": {"launch_synced": ("+", 10), "launch_pipelined": ("<=", 1.5), "launch_3_args": ("<=", 1.5), "read_4k": ("+", 10),
            "write_4k": ("+", 10), "write_1m": (">=", 0.35), "write_bulk": (">=", 0.4), "read_bulk": (">=", 0.4),
            "create_buffer": ("<=", 2), "event_chain": ("<=", 1.6), "saxpy": ("<=", 2.5)},
}
# A device with memory of its own is reached through the bulk area, which its driver knows.
SERVED_GPU = {"write_bulk": (">=", 2.0), "read_bulk": (">=", 2.0)}
# And that must not cost much against Grus in the program's own process.
BESIDE_GRUS = "unix against grus"
BESIDE_GRUS_LIMIT = (">=", 0.8)
ROUND_TRIP = "round_trip"
UNLIMITED = ("native A", "native B", BareTcp.MODE)


def limit_of(case, cpu, mode="grus"):
    """(sign, number), or None where the case is only reported."""
    if mode in SERVED:
        return SERVED_GPU.get(case) if mode == "unix" and not cpu and case in SERVED_GPU else SERVED[mode].get(case)
    if case in TIME:
        return "<=", 1.05
    if case == "copy_256m" or (cpu and case in {"write_bulk", "read_bulk", "write_pinned", "read_pinned"}):
        return ">=", 0.97
    if case in {"write_pinned", "read_pinned"}:
        return ">=", 0.99
    if case in {"write_bulk", "read_bulk"}:  # staged through pinned memory by several threads, where there are cores
        staged = {"write_bulk": 4.0, "read_bulk": 2.5}[case]
        return ">=", staged if (os.cpu_count() or 1) >= CORES_FOR_STAGING else 0.97
    return None


def is_bulk(case):
    return case["unit"] == "GB/s"


def against_native(mode):
    return lambda turn: ratios.log_ratio(turn[mode], turn["native A"], turn["native B"])


def beside_native(mode, turns, trips):
    """(middle, low, high) of the microseconds that a turn takes longer than native and a round trip of the channel."""
    trip = statistics.median(turn[mode] for turn in trips)
    longer = sorted(turn[mode] - statistics.fmean([turn["native A"], turn["native B"]]) - trip for turn in turns)
    chance = random.Random(1)
    means = sorted(ratios.middle_mean(chance.choices(longer, k=len(longer))) for _ in range(ratios.RESAMPLES))
    return ratios.middle_mean(longer), means[int(0.025 * len(means))], means[int(0.975 * len(means)) - 1]


def against_grus(turn):
    return ratios.log_ratio(turn["unix"], turn["grus"])


def against_itself(turn):
    return ratios.log_ratio(turn["native B"], turn["native A"])


def interval(rounds, log_ratio):
    return ratios.interval([[log_ratio(turn) for turn in turns] for turns in rounds if turns])


def verdict(limit, ratio):
    if limit is None or ratio is None:
        return ""
    sign, bound = limit
    _, low, high = ratio
    if sign in ("<=", "+"):
        return "ok" if high <= bound else "MISSED" if low > bound else "unclear"
    return "ok" if low >= bound else "MISSED" if high < bound else "unclear"


def rows_of(comparison, about):
    """The result's rows: for each case one per mode."""
    rows = []
    for case in comparison.cases:
        name = case["case"]
        bulk = f", {comparison.device['bulk_mib']} MiB" if is_bulk(case) and name != "copy_256m" else ""
        what = case["about"] + bulk
        rounds = [taken.get(name, []) for taken in comparison.rounds]
        turns = list(itertools.chain.from_iterable(rounds))
        if name in comparison.broken or not turns:
            why = comparison.broken.get(name, "no time was left")
            rows.append({"name": name, "mode": "grus", "device": about["device"], "unit": case["unit"], "median": None,
                         "low": None, "high": None, "runs": 0, "ratio": None, "what": what, "why": why,
                         "verdict": "BROKEN" if name in comparison.broken else "unclear", "about": about})
            continue
        trips = list(itertools.chain.from_iterable(taken.get(ROUND_TRIP, []) for taken in comparison.rounds))
        for mode in turns[0]:
            limit = limit_of(name, comparison.device["cpu"], mode) if mode not in UNLIMITED else None
            values = sorted(turn[mode] for turn in turns)
            ratio = {"native A": (1.0, 1.0, 1.0), "native B": interval(rounds, against_itself)}.get(mode) \
                or interval(rounds, against_native(mode))
            row = {"name": name, "mode": mode, "device": about["device"], "unit": case["unit"],
                   "median": statistics.median(values), "tenth": values[int(0.1 * len(values))], "low": values[int(0.05 * len(values))],
                   "high": values[max(0, math.ceil(0.95 * len(values)) - 1)], "runs": len(values), "ratio": ratio[0],
                   "ratio_low": ratio[1], "ratio_high": ratio[2], "what": what, "about": about}
            if limit and limit[0] == "+" and trips:
                longer = beside_native(mode, turns, trips)
                row |= {"limit": f"native + round trip + {limit[1]} us", "verdict": verdict(limit, longer), "longer": longer[0],
                        "longer_low": longer[1], "longer_high": longer[2]}
            elif limit and limit[0] != "+":
                row |= {"limit": f"{limit[0]} {limit[1]}", "verdict": verdict(limit, ratio)}
            rows.append(row)
            if mode == "unix" and "grus" in turns[0] and name in SERVED_GPU and not comparison.device["cpu"]:
                ratio = interval(rounds, against_grus)
                rows.append(row | {"mode": BESIDE_GRUS, "ratio": ratio[0], "ratio_low": ratio[1], "ratio_high": ratio[2],
                                   "limit": f"{BESIDE_GRUS_LIMIT[0]} {BESIDE_GRUS_LIMIT[1]}",
                                   "verdict": verdict(BESIDE_GRUS_LIMIT, ratio)})
    return rows


def other_modes(rows):
    return list(dict.fromkeys(row["mode"] for row in rows if row["mode"] not in ("native A", "native B")))


def against_text(row):
    """What the row is judged by: its ratio, or what it takes longer."""
    if row and "longer" in row:
        return f"{row['longer']:+.1f} us [{row['longer_low']:+.1f}, {row['longer_high']:+.1f}]"
    return ratio_text(row)


def middle_and_tenth(row):
    if not row or row.get("median") is None:
        return "-"
    return common.short(row["median"]) + (f" ({common.short(row['tenth'])})" if "tenth" in row else "")


def ratio_text(row):
    return f"{row['ratio']:.3f} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]" if row and row["ratio"] else "-"


HEADER = ["case", "unit", "native (10th)", "mode", "through Grus (10th)", "against native [95%]", "native / native [95%]", "limit",
          "verdict", "turns"]


def lines_of(rows):
    """One for each case and mode, with medians and 10th percentiles."""
    by_case = {}
    for row in rows:
        by_case.setdefault(row["name"], {})[row["mode"]] = row
    lines = []
    for name, by_mode in by_case.items():
        native = by_mode.get("native A")
        for mode in other_modes(rows) or ["native B"]:
            row = by_mode.get(mode)
            shown = row or native
            if not shown or (mode in (BareTcp.MODE, BESIDE_GRUS) and not row):
                continue
            lines.append([shown.get("what", name), shown["unit"], middle_and_tenth(native), mode, middle_and_tenth(row),
                          against_text(row), ratio_text(by_mode.get("native B")), shown.get("limit", ""), shown.get("verdict", ""),
                          shown["runs"]])
    return lines


def printed(rows):
    return common.table(HEADER, lines_of(rows), left=2)
