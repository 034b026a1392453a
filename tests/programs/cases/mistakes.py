"""Calls that fail natively fail with the same code through Grus."""
from harness.case import Case, Failed


class Code(str):
    """What a call returned, what the specification asks for, and whether only the vendor can tell."""

    def __new__(cls, name, returned, specified):
        code = super().__new__(cls, returned)
        code.specified, code.in_vendors_hands = specified, name == "binary_is_rubbish"
        return code


class Mistakes(Case):
    name = "mistakes"
    packages = ("ocl-icd-opencl-dev", "g++")
    sources = {"mistakes.c": ["-lOpenCL"]}
    targets = ("pocl", "rusticl", "oclgrind")
    fast = ("pocl", "oclgrind")
    timed = False
    least_moves = 0  # each mistake has a process of its own

    def run(self, place):
        facts = {}
        for line in place.run(place.program("mistakes.c")).out.splitlines():
            name, code, _, specified = line.split()
            facts[name] = Code(name, code, specified)
        if not facts:
            raise Failed("nothing printed")
        return facts

    def same(self, native, grus):
        """The driver's code. Where the driver crashes or disagrees with the specification, the specification's."""
        if not isinstance(native, Code):
            return False
        return grus == native.specified or grus == native and (native != "crashed" or native.in_vendors_hands)

    def compare_calls(self, native, grus):
        return []  # each mistake runs in a process of its own, which does not report


CASES = (Mistakes(),)
