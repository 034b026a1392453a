"""One case on one vendor: run it natively, run it through Grus, compare."""
import shutil
import traceback
from dataclasses import asdict, dataclass, field

from .case import Failed, Missing
from .place import Place

MOST_TURNS = 3  # of a program that is moved, until one run is moved often enough
PAUSES = ((0.0, 0.1), (0.0, 0.0))  # between moves, in seconds: in the first run, and if those were too few


@dataclass
class Verdict:
    program: str
    vendor: str
    result: str = "passed"  # passed, failed, skipped
    native: str = "-"
    grus: str = "-"
    native_s: float = 0.0
    grus_s: float = 0.0
    why: str = ""
    moves: list = field(default_factory=list)  # each time, of the run that was moved most
    details: list = field(default_factory=list)

    def failed(self, why, details=()):
        self.result, self.why, self.details = "failed", why, list(details)
        return self

    def skipped(self, why):
        self.result, self.why = "skipped", why
        return self

    def as_dict(self) -> dict:
        return asdict(self)


@dataclass
class Settings:
    fast: bool = False
    native_only: bool = False
    allow_missing: bool = False
    through: str = ""  # unix or tcp: Grus's devices are behind a server
    move: bool = False  # while the program runs


def check(case, vendor, tools, folder, settings) -> Verdict:
    verdict = Verdict(case.name, vendor.name)
    if vendor.name in case.slow:
        return verdict.skipped(f"not tried: {case.slow[vendor.name]}")
    here = folder / f"{case.name}-{vendor.name}"
    here.mkdir()
    try:
        icd_file = vendor.icd_file(here)
        tools.add(case)

        def place(mode, native=None, turn=0):
            return Place(case, mode, vendor, icd_file, here / f"{mode}{turn}", tools, fast=settings.fast, native=native,
                         through=settings.through, move=settings.move, pause=PAUSES[min(turn, 1)])

        return _run_both(case, verdict, place, settings)
    except Missing as missing:
        why = f"missing: {missing}"
        return verdict.skipped(why) if settings.allow_missing else verdict.failed(why)
    except Exception:  # the case itself is broken: say so, and go on with the others
        return verdict.failed("the case broke", traceback.format_exc().splitlines()[-6:])
    finally:
        shutil.rmtree(here)


def _run_both(case, verdict, make_place, settings) -> Verdict:
    native = make_place("native")
    try:
        native_facts = case.run(native)
        verdict.native = "ok"
    except Failed as failure:
        verdict.native = "fails"
        if verdict.vendor in case.targets:
            return verdict.failed(f"fails natively, where it should pass ({failure})")
        return verdict.skipped(f"no target: fails natively ({failure})")
    finally:
        verdict.native_s = native.wall
    if settings.native_only:
        return verdict
    for turn in range(MOST_TURNS):
        _run_through_grus(case, verdict, make_place("grus", native, turn), native, native_facts)
        if verdict.result != "passed" or not settings.move or verdict.moves[-1] >= case.least_moves:
            return verdict
    return verdict.failed(f"moved {max(verdict.moves)} times at most in a run, not {case.least_moves}")


def _run_through_grus(case, verdict, grus, native, native_facts) -> None:
    try:
        grus_facts = case.run(grus)
        differences = case.compare(native_facts, grus_facts) + case.compare_calls(native.calls, grus.calls)
        verdict.grus = "differs" if differences else "ok"
    except Failed as failure:
        verdict.grus = "fails"
        verdict.failed(f"fails through Grus ({failure})")
        return
    finally:
        verdict.grus_s += grus.wall
        grus.close()
        if grus.is_moved:
            verdict.moves.append(grus.most_moves)
    if differences:
        verdict.failed(f"{len(differences)} difference{'s' * (len(differences) > 1)}", differences)
