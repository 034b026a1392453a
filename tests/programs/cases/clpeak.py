"""clpeak: it runs, and reports the same tests, each with a number."""
import re

from harness.case import Case, Failed

# The kinds of test that take seconds, not minutes.
QUICK = {
    "pocl": ("--kernel-latency",),
    "rusticl": ("--kernel-latency", "--transfer-bandwidth"),
    "oclgrind": ("--transfer-bandwidth",),
}
MORE_ON_POCL = ("--transfer-bandwidth", "--global-bandwidth", "--compute-integer")


class Clpeak(Case):
    name = "clpeak"
    packages = ("clpeak",)
    programs = ("clpeak",)
    targets = ("pocl", "rusticl", "oclgrind")
    fast = ("pocl", "oclgrind")
    launches_repeat = False  # it launches for as long as a test should take

    def run(self, place):
        kinds = QUICK[place.vendor.name]
        if place.vendor.name == "pocl" and not place.fast and not place.timing:
            kinds += MORE_ON_POCL
        facts, group = {}, ""
        for line in place.run("clpeak", *kinds).out.splitlines():
            label, colon, value = line.strip().partition(" : ")
            if not colon:
                group = label or group
            elif re.search(r"bandwidth|latency|compute", group + label):
                if not re.match(r"([\d.]+|inf)( us)?$", value.strip()):
                    raise Failed(f"{label.strip()}: {value}")
                facts[f"{group} / {label.strip()}"] = "a number"
        if not facts:
            raise Failed("no test reported")
        return facts


CASES = (Clpeak(),)
