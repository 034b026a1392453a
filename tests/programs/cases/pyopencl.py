"""pyopencl: arrays, reductions, scans, images, events, sub-buffers; with its caches empty and filled."""
from harness.case import Case, lines_as_facts


class PyOpenCl(Case):
    name = "pyopencl"
    cost = 25
    packages = ("python3-pyopencl",)
    programs = ("/usr/bin/python3",)
    targets = ("pocl", "rusticl", "oclgrind")
    fast = ("pocl",)

    def run(self, place):
        def once():
            count = 1 << 22 if place.is_long else 4096
            return lines_as_facts(place.run("/usr/bin/python3", place.program("pyopencl_arrays.py"), count).out)

        if place.timing:
            return once()
        place.forget()
        return once() | {f"warm {name}": value for name, value in once().items()}


CASES = (PyOpenCl(),)
