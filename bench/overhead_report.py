"""From turns to ratios, intervals and verdicts: the numbers of overhead_run.py."""

import itertools
import math
import os
import statistics

import common
import ratios

TIME = {"launch_pipelined", "launch_3_args", "read_4k", "map_64k", "map_16m", "map_use_host_ptr"}
CORES_FOR_STAGING = 16


def limit_of(case, cpu):
    """(sign, ratio), or None where the case is only reported."""
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


def against_native(turn):
    return ratios.log_ratio(turn["grus"], turn["native A"], turn["native B"])


def against_itself(turn):
    return ratios.log_ratio(turn["native B"], turn["native A"])


def interval(rounds, log_ratio):
    return ratios.interval([[log_ratio(turn) for turn in turns] for turns in rounds if turns])


def verdict(limit, ratio):
    if limit is None or ratio is None:
        return ""
    sign, bound = limit
    _, low, high = ratio
    if sign == "<=":
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
        limit = limit_of(name, comparison.device["cpu"])
        for mode in comparison.commands:
            values = sorted(turn[mode] for turn in turns)
            ratio = {"native A": (1.0, 1.0, 1.0), "native B": interval(rounds, against_itself)}.get(mode) \
                or interval(rounds, against_native)
            row = {"name": name, "mode": mode, "device": about["device"], "unit": case["unit"],
                   "median": statistics.median(values), "low": values[int(0.05 * len(values))],
                   "high": values[max(0, math.ceil(0.95 * len(values)) - 1)], "runs": len(values), "ratio": ratio[0],
                   "ratio_low": ratio[1], "ratio_high": ratio[2], "what": what, "about": about}
            if mode == "grus" and limit:
                row |= {"limit": f"{limit[0]} {limit[1]}", "verdict": verdict(limit, ratio)}
            rows.append(row)
    return rows


def ratio_text(row):
    return f"{row['ratio']:.3f} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]" if row and row["ratio"] else "-"


def printed(rows):
    by_case = {}
    for row in rows:
        by_case.setdefault(row["name"], {})[row["mode"]] = row
    lines = []
    for name, modes in by_case.items():
        a, b, grus = (modes.get(mode) for mode in ("native A", "native B", "grus"))
        native = statistics.median([a["median"], b["median"]]) if a else None
        any_row = a or grus
        lines.append([name, any_row["unit"], common.short(native), common.short(grus["median"]) if grus else "-",
                      ratio_text(grus), ratio_text(b), (grus or {}).get("limit", ""), (grus or {}).get("verdict", "")])
    return common.table(["case", "unit", "native", "grus", "grus / native [95%]", "native / native [95%]", "limit", "verdict"],
                        lines, left=2)
