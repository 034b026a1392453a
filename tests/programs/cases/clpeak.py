"""clpeak: it runs, and reports the same tests, each with a number."""
import re

from harness.case import Case, Failed


class Clpeak(Case):
    name = "clpeak"
    packages = ("clpeak",)
    programs = ("clpeak",)
    targets = ("pocl", "rusticl", "oclgrind")
    fast = ("pocl", "oclgrind")
    launches_repeat = False  # it launches for as long as a test should take

    def run(self, place):
        kinds = ["--transfer-bandwidth"]
        if place.vendor.name != "oclgrind":  # a simulator: minutes for the rest
            kinds.append("--kernel-latency")
        if place.fast and place.vendor.name == "pocl":
            kinds.remove("--transfer-bandwidth")
        if place.vendor.name == "pocl" and not place.fast and not place.timing:
            kinds += ["--global-bandwidth", "--compute-integer"]
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
