"""Tables for people."""
import sys

MOST_DETAILS = 12


def _row(cells, widths) -> str:
    padded = (f"{cell:>{-width}}" if width < 0 else f"{cell:<{width}}" for cell, width in zip(cells, widths))
    return "  ".join(padded).rstrip()


class Table:
    """Prints rows as they come, so the widths are given: negative ones are for numbers."""

    def __init__(self, titles, widths):
        self.widths = widths
        self.line(titles)

    def line(self, cells) -> None:
        print(_row([str(cell) for cell in cells], self.widths), flush=True)


def name_width(cases) -> int:
    return max([len("program"), *(len(case.name) for case in cases)])


def verdict_table(cases) -> Table:
    titles = ("program", "vendor", "native", "grus", "native s", "grus s", "moves", "result")
    return Table(titles, (name_width(cases), 8, 6, 7, -8, -8, -8, 1))


def print_verdict(table, verdict) -> None:
    def seconds(value):
        return f"{value:.1f}" if value else "-"

    result = verdict.result
    if sys.stdout.isatty():
        result = {"passed": "\033[32m", "failed": "\033[31m", "skipped": "\033[33m"}[result] + result + "\033[0m"
    table.line((verdict.program, verdict.vendor, verdict.native, verdict.grus, seconds(verdict.native_s),
                seconds(verdict.grus_s), "+".join(map(str, verdict.moves)) or "-", result + (f": {verdict.why}" if verdict.why else "")))
    for detail in verdict.details[:MOST_DETAILS]:
        print(f"    {detail}", flush=True)
    if len(verdict.details) > MOST_DETAILS:
        print(f"    and {len(verdict.details) - MOST_DETAILS} more", flush=True)


def times_table(cases) -> Table:
    titles = ("program", "vendor", "native s", "grus s", "grus/native [95%]", "native/native [95%]", "cpu time [95%]",
              "speed of its own [95%]", "verdict")
    return Table(titles, (name_width(cases), 8, -8, -8, 22, 22, 22, 22, 1))


def print_times(table, times) -> None:
    if times.why:
        table.line((times.program, times.vendor, "-", "-", times.why, "", "", "", ""))
        return
    table.line((times.program, times.vendor, f"{times.native_s:.2f}", f"{times.grus_s:.2f}", times.ratio,
                times.native_ratio, times.cpu_ratio, times.speed_ratio or "", times.verdict))


def summary(verdicts) -> str:
    count = {name: sum(verdict.result == name for verdict in verdicts) for name in ("passed", "failed", "skipped")}
    return f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"
