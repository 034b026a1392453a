"""Calls that fail natively fail with the same code through Grus."""
from harness.case import Case, Failed


class Code(str):
    """What a call returned, and what the specification asks for."""

    def __new__(cls, returned, specified):
        code = super().__new__(cls, returned)
        code.specified = specified
        return code


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
            facts[name] = Code(code, specified)
        if not facts:
            raise Failed("nothing printed")
        return facts

    def same(self, native, grus):
        """The driver's code. Where the driver crashes or disagrees with the specification, the specification's."""
        if not isinstance(native, Code):
            return False
        return grus == native.specified or grus == native != "crashed"

    def compare_calls(self, native, grus):
        return []  # each mistake runs in a process of its own, which does not report


CASES = (Mistakes(),)
