"""What a case says about its program, and how two runs of it are compared."""
import math


class Missing(Exception):
    """Something that has to be installed first."""


class Failed(Exception):
    """The program did not do what it should, whatever the mode."""


class Case:
    """One program. A case gives run(), which drives the program in a place and returns facts to compare."""

    name = ""
    packages = ()  # Debian packages, named when something is missing
    programs = ()  # executables that must be installed
    sources = {}  # our own programs: source file -> compiler flags
    targets = ("pocl",)  # vendors on which it passes natively: failing natively there is a failure
    fast = ()  # vendors on which it belongs to the fast set
    cost = 1  # roughly the seconds that it takes: the longest start first
    slow = {}  # vendors on which it is not tried, and why
    present_as_gpu = False
    timed = True  # its time says something
    least_moves = 10  # with --move: of one run of the program
    launches_repeat = True  # two native runs launch the same number of kernels
    tolerance = 0.0  # relative, for facts that are numbers
    cured = ()  # (call, code): fails natively where a driver doesn't do what the specification asks, and needn't here

    def run(self, place) -> dict:
        raise NotImplementedError

    def compare(self, native: dict, grus: dict) -> list:
        """The differences, one line each."""
        lines = []
        for name in [*native, *(extra for extra in grus if extra not in native)]:
            ours, theirs = grus.get(name, "absent"), native.get(name, "absent")
            if not self.same(theirs, ours):
                lines.append(f"{name}: natively {theirs}, through Grus {ours}")
        return lines

    def same(self, native, grus) -> bool:
        if isinstance(native, float) and isinstance(grus, float):
            return math.isclose(native, grus, rel_tol=self.tolerance, abs_tol=0.0)
        return native == grus

    def compare_calls(self, native: dict, grus: dict) -> list:
        """Calls that fail must fail alike; programs that repeat must launch as often."""
        def fails_only_in(here, there):
            return sorted((call, code) for call, code in here.keys() - there.keys() if code != 0)

        lines = [f"{call} returned {code} natively, never through Grus" for call, code in fails_only_in(native, grus)
                 if (call, code) not in self.cured]
        lines += [f"{call} returned {code} through Grus, never natively" for call, code in fails_only_in(grus, native)]
        launch = ("clEnqueueNDRangeKernel", 0)
        if self.launches_repeat and native.get(launch, 0) != grus.get(launch, 0):
            lines.append(f"{native.get(launch, 0)} kernels launched natively, {grus.get(launch, 0)} through Grus")
        return lines


def lines_as_facts(text: str) -> dict:
    """Facts from lines of "name value…": the last word is the value, a number where it is one."""
    facts = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if "WRONG" in line:
            raise Failed(line)
        facts[name] = value
    return facts
