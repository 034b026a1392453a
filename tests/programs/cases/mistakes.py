"""Calls that fail natively fail with the same code through Grus."""
from harness.case import Case, Failed


class Mistakes(Case):
    name = "mistakes"
    packages = ("ocl-icd-opencl-dev", "g++")
    sources = {"mistakes.c": ["-lOpenCL"]}
    targets = ("pocl", "rusticl", "oclgrind")
    fast = ("pocl", "oclgrind")

    def run(self, place):
        facts = {}
        for line in place.run(place.program("mistakes.c")).out.splitlines():
            name, code, _, specified = line.split()
            facts[name] = (code, specified)
        if not facts:
            raise Failed("nothing printed")
        return facts

    def same(self, native, grus):
        """The driver's code; where the driver crashes or disagrees with the specification, the specification's will do."""
        (native_code, specified), (grus_code, _) = native, grus
        if native_code == "crashed":
            return grus_code == specified
        return grus_code in (native_code, specified)

    def compare_calls(self, native, grus):
        return []  # each mistake runs in a process of its own, which does not report


CASES = (Mistakes(),)
