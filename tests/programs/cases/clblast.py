"""CLBlast: its own tuners, which try many variants of a kernel and verify each, and routines of all levels."""
import re

from harness.case import Case, Failed, lines_as_facts


class ClblastTuner(Case):
    cost = 15
    packages = ("clblast-utils",)
    targets = ("pocl", "rusticl", "oclgrind")
    launches_repeat = False  # it repeats short measurements
    timed = False

    def __init__(self, kind, options, fast=()):
        self.kind, self.options, self.fast = kind, options, fast
        self.name = f"clblast-tuner-{kind}"
        self.programs = (f"clblast_tuner_{kind}",)

    def run(self, place):
        text = place.run(self.programs[0], "-platform", "0", "-device", "0", "-precision", "32", "-runs", "1",
                         *self.options).out
        facts, part = {}, 0
        for line in re.sub(r"\x1b\[[\d;]*m", "", text).splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            if cells[0] == "ID":
                part += 1
            elif len(cells) >= 8 and cells[0].isdigit():
                # the order is random, so each variant is known by its parameters
                variant = f"part {part} variant {' '.join(cells[2].split())}"
                facts[variant] = "match" if "match" in cells[-1] else cells[-1]
        if not facts:
            raise Failed("no variant tried")
        if "match" not in facts.values():
            raise Failed("no variant gives the right result")
        return facts


class ClblastRoutines(Case):
    name = "clblast-routines"
    packages = ("libclblast-dev", "ocl-icd-opencl-dev", "g++")
    sources = {"clblast_routines.cpp": ["-std=c++20", "-lclblast", "-lOpenCL"]}
    targets = ("pocl", "rusticl", "oclgrind")
    fast = ("pocl",)

    def run(self, place):
        return lines_as_facts(place.run(place.program("clblast_routines.cpp"), 700 if place.is_long else 1).out)


CASES = (
    ClblastRoutines(),
    ClblastTuner("xdot", ("-n", "4096"), fast=("rusticl",)),
    ClblastTuner("xaxpy", ("-n", "131072")),
    ClblastTuner("copy_fast", ("-m", "256", "-n", "256")),
)
