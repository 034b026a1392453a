"""Libraries that come without programs of their own in Debian, each with a small one that checks its results."""
from harness.case import Case, lines_as_facts


EVERYWHERE = ("pocl", "rusticl", "oclgrind")


class Program(Case):
    """A program of ours that prints results and ends non-zero if one is wrong."""

    def __init__(self, name, source, packages, flags, targets, fast, timing, cured=()):
        self.name, self.packages, self.targets, self.fast, self.cured = name, packages, targets, fast, cured
        self.source, self.timing = source, timing
        self.sources = {source: flags}

    def run(self, place):
        arguments = self.timing if place.is_long else ()
        return lines_as_facts(place.run(place.program(self.source), *arguments).out)


CASES = (
    Program("clfft", "clfft_transforms.cpp", ("libclfft-dev", "ocl-icd-opencl-dev", "g++"),
            ["-std=c++20", "-lclFFT", "-lOpenCL"], EVERYWHERE, EVERYWHERE, ("400",)),
    Program("boost-compute", "boost_compute.cpp", ("libboost-dev", "ocl-icd-opencl-dev", "g++"),
            ["-std=c++17", "-O0", "-lOpenCL"], ("pocl", "rusticl"), ("pocl",), ("2000000",)),
    Program("viennacl", "viennacl_solver.cpp", ("libviennacl-dev", "ocl-icd-opencl-dev", "g++"),
            ["-std=c++14", "-O0", "-lOpenCL"], ("pocl", "rusticl"), (), ("800",),
            cured=(("clGetDeviceIDs", -1),)),  # rusticl has no default device; the specification wants one
)
