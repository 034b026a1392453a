"""Tables and bars for a terminal."""

import common
from harness.modes import AGAIN, NATIVE

WIDTH = 40


def ratio_text(row, key=""):
    if not row or row.get(f"{key}ratio") is None:
        return "-"
    return f"{row[f'{key}ratio']:.3f} [{row[f'{key}ratio_low']:.3f}, {row[f'{key}ratio_high']:.3f}]"


def seconds_text(row):
    return "-" if not row or row["median"] is None else f"{common.short(row['median'])} ({common.short(row['low'])}-{common.short(row['high'])})"


def by_name(rows):
    names = {}
    for row in rows:
        names.setdefault(row["name"], {})[row["mode"]] = row
    return names


def other_modes(rows):
    return list(dict.fromkeys(row["mode"] for row in rows if row["mode"] not in ("", NATIVE, AGAIN)))


def table(rows):
    lines = []
    for name, modes in by_name(rows).items():
        if "" in modes:
            lines.append([name, "-", "-", "-", "-", "-", "FAILED", "0"])
            continue
        for mode in other_modes(rows) or [NATIVE]:
            row = modes.get(mode)
            lines.append([name, mode, seconds_text(modes.get(NATIVE)), seconds_text(row), ratio_text(row),
                          ratio_text(modes.get(AGAIN)), ratio_text(row, "calls_"), row["runs"] if row else 0])
    return common.table(["workload", "mode", "native s (middle half)", "s (middle half)", "ratio [95%]",
                         "native / native [95%]", "in OpenCL calls [95%]", "runs"], lines, left=2)


def bars(rows):
    """A bar for each ratio: a full one is as slow as native."""
    lines = []
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        if row["mode"] in ("", NATIVE, AGAIN) or row["ratio"] is None:
            continue
        length = min(2 * WIDTH, round(row["ratio"] * WIDTH))
        bar = "#" * min(length, WIDTH) + "+" * max(0, length - WIDTH)
        lines.append(f"{row['name']:<{width}}  {row['mode']:<5} {bar.ljust(WIDTH)}| {row['ratio']:.3f}")
    return "\n".join(lines)
