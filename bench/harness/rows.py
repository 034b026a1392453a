"""From runs to the rows of a result: one per workload and mode."""

from harness.measure import spread
from harness.modes import AGAIN, NATIVE
from ratios import interval, log_ratio


def total(run):
    return run.seconds["total"]


def ratio_of(measured, mode, of=total):
    """Against native in the same round; native again shows what two equal things differ by."""
    natives = (NATIVE,) if mode in (NATIVE, AGAIN) else (NATIVE, AGAIN)
    rounds = [taken for taken in measured.rounds if mode in taken and all(name in taken for name in natives)]
    if mode == NATIVE:
        return (1.0, 1.0, 1.0)
    # A time of nothing can't be compared.
    pairs = [(of(taken[mode]), [of(taken[name]) for name in natives]) for taken in rounds]
    pairs = [log_ratio(value, *others) for value, others in pairs if value > 0 and min(others) > 0]
    return interval([[pair] for pair in pairs]) if pairs else None


def rows_of(measurement, about):
    rows = []
    for measured in measurement.measured:
        name = measured.workload.name
        if measured.broken:
            rows.append({"name": name, "mode": "", "device": about["device"], "unit": "s", "median": None, "low": None,
                         "high": None, "runs": 0, "ratio": None, "why": measured.broken, "about": about})
            continue
        for mode in measurement.modes:
            values = measured.values(mode.name, total)
            if not values:
                continue
            median, low, high = spread(values)
            last = measured.rounds[-1][mode.name]
            row = {"name": name, "mode": mode.name, "device": about["device"], "unit": "s", "median": median, "low": low,
                   "high": high, "runs": len(values), "checksum": last.checksum,
                   "size": last.figures.get("size"), "iterations": last.figures.get("iterations"), "about": about}
            for key, of in (("", total), ("calls_", lambda run: run.seconds["calls"])):
                ratio = ratio_of(measured, mode.name, of)
                row |= dict(zip((f"{key}ratio", f"{key}ratio_low", f"{key}ratio_high"), ratio or (None, None, None)))
            row["phases"] = {phase: spread(measured.values(mode.name, lambda run, phase=phase: run.seconds[phase]))[0]
                             for phase in last.seconds}
            row |= {key: spread(measured.values(mode.name, lambda run, key=key: run.figures[key]))[0]
                    for key, value in last.figures.items() if isinstance(value, float)}
            if "study" in last.figures:
                row["study"] = last.figures["study"]
            rows.append(row)
    return rows
