"""OpenMM on its OpenCL platform: energies and positions along a trajectory of argon, and of water with PME."""
import glob

from harness.case import Case, Failed

PLUGINS = (glob.glob("/usr/lib/*/openmm/plugins") or ["/usr/lib/openmm/plugins"])[0]
SIZES = {  # molecules along each edge, steps
    "argon": {"fast": (8, 200), "full": (8, 1000), "time": (8, 1000), "moved": (8, 4000)},
    "water": {"fast": (7, 50), "full": (8, 300), "time": (8, 200), "moved": (8, 900)},
}


class OpenMm(Case):
    cost = 12
    packages = ("libopenmm-dev", "libopenmm-plugins", "g++")
    sources = {"openmm_energies.cpp": ["-std=c++20", f'-DOPENMM_PLUGINS="{PLUGINS}"', "-lOpenMM"]}
    fast = ("pocl",)
    # Energies are summed in an order that varies: the same water gives two energies natively, 1.3e-5 apart. Positions
    # don't vary, and are compared as printed.
    tolerance = 2e-5

    def __init__(self, what, targets):
        self.what, self.targets = what, targets
        self.name = f"openmm-{what}"

    def run(self, place):
        side, steps = SIZES[self.what]["time" if place.timing else "moved" if place.is_long else "fast" if place.fast else "full"]
        if place.vendor.name != "pocl":
            side, steps = 4, 5
        facts = {}
        for line in place.run(place.program("openmm_energies.cpp"), self.what, side, steps).out.splitlines():
            words = line.split()
            if words[:1] == ["device"]:
                facts["device"] = line
            if words[:1] != ["step"]:
                continue
            where = f"step {words[1]}"
            facts |= {f"{where} potential": float(words[3]), f"{where} kinetic": float(words[5])}
            facts[f"{where} position"] = " ".join(words[7:])
        if len(facts) < 10:
            raise Failed("no trajectory printed")
        self._energy_is_conserved(facts, steps)
        return facts

    @staticmethod
    def _energy_is_conserved(facts, steps):
        first, last = ((facts[f"step {step} potential"] + facts[f"step {step} kinetic"]) for step in (0, steps))
        if abs(first - last) > 0.02 * abs(first):
            raise Failed(f"total energy went from {first:.6g} to {last:.6g}")


CASES = (OpenMm("argon", ("pocl", "rusticl")), OpenMm("water", ("pocl",)))
