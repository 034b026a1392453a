"""Wall times, native and Grus interleaved, with the spread that two native runs show against each other."""
import os
import shutil
import statistics
from dataclasses import dataclass

import ratios  # bench/ratios.py

from .case import Failed, Missing
from .place import Place

LIMIT = 1.05
# Of the speed that a program reports itself, where its devices are behind a server; none where nothing is promised.
LEAST_SPEED_THROUGH = {"unix": 0.9}


@dataclass
class Interval:
    middle: float
    low: float
    high: float

    def __str__(self):
        return f"{self.middle:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass
class Times:
    program: str
    vendor: str
    native_s: float = 0.0
    grus_s: float = 0.0
    ratio: Interval = None
    native_ratio: Interval = None  # native against native: what the machine's noise alone does
    cpu_ratio: Interval = None
    through: str = ""  # unix or tcp
    batches: str = ""
    native_speed: float = 0.0  # of its own work per second, if it reports that
    grus_speed: float = 0.0
    speed_ratio: Interval = None
    rounds: int = 0
    why: str = ""

    @property
    def limit(self) -> float:
        """Of the time, or of the speed through a server; 0: none."""
        if not self.through:
            return LIMIT
        return LEAST_SPEED_THROUGH.get(self.through, 0) if self.speed_ratio and not self.batches else 0

    @property
    def verdict(self) -> str:
        if self.why or not self.limit:
            return ""
        if self.through:
            low, high = self.limit / self.speed_ratio.high, self.limit / self.speed_ratio.low
        else:
            low, high = self.ratio.low / self.limit, self.ratio.high / self.limit
        return "ok" if high <= 1 else "MISSED" if low > 1 else "unclear"

    def as_dict(self) -> dict:
        row = {"name": self.program, "vendor": self.vendor}
        if self.why:
            return row | {"verdict": self.why}
        if self.through:
            row |= {"through": self.through, "batches": self.batches or "on"}
        if self.speed_ratio:
            row |= {"native per s": round(self.native_speed, 1), "Grus per s": round(self.grus_speed, 1),
                    "speed [95%]": str(self.speed_ratio)}
        return row | {"native s": round(self.native_s, 3), "Grus s": round(self.grus_s, 3),
                      "Grus / native [95%]": str(self.ratio), "native / native [95%]": str(self.native_ratio),
                      "CPU time [95%]": str(self.cpu_ratio), "limit": self.limit or "", "verdict": self.verdict,
                      "rounds": self.rounds}


def ratio_interval(above, *below) -> Interval:
    return Interval(*ratios.interval([[ratios.log_ratio(*values)] for values in zip(above, *below)]))


def measure(case, vendor, tools, folder, repeats, through) -> Times:
    times = Times(case.name, vendor.name, through=through or "",
                  batches="off" if os.environ.get("GRUS_BATCHES") == "off" else "")
    if vendor.name in case.slow or vendor.name not in case.targets:
        times.why = f"not tried: {case.slow.get(vendor.name, 'fails natively')}"
        return times
    here = folder / f"{case.name}-{vendor.name}"
    here.mkdir()
    places = {}
    try:
        icd_file = vendor.icd_file(here)
        tools.add(case)
        places = {
            label: Place(case, mode, vendor, icd_file, here / label, tools, timing=True, through=through)
            for label, mode in (("native", "native"), ("grus", "grus"), ("again", "native"))
        }
        _interleave(case, places, repeats, times)
    except (Failed, Missing) as reason:
        times.why = str(reason)
    finally:
        for place in places.values():
            place.close()
        shutil.rmtree(here)
    return times


def _interleave(case, places, repeats, times) -> None:
    walls = {label: [] for label in places}
    cpus = {label: [] for label in places}
    speeds = {label: [] for label in places}
    case.run(places["native"])  # fills the caches; not counted
    case.run(places["grus"])
    places["again"].adopt_caches(places["native"])
    order = list(places)
    for _ in range(repeats):
        order = order[1:] + order[:1]  # nobody is always first
        for label in order:
            place = places[label]
            place.wall = place.cpu = 0.0
            case.run(place)
            walls[label].append(place.wall)
            cpus[label].append(place.cpu)
            speeds[label].append(place.speed)
    times.rounds = repeats
    times.native_s = statistics.median(walls["native"] + walls["again"])
    times.grus_s = statistics.median(walls["grus"])
    times.ratio = ratio_interval(walls["grus"], walls["native"], walls["again"])
    times.native_ratio = ratio_interval(walls["native"], walls["again"])
    times.cpu_ratio = ratio_interval(cpus["grus"], cpus["native"], cpus["again"])
    if all(all(taken) for taken in speeds.values()):
        times.native_speed = statistics.median(speeds["native"] + speeds["again"])
        times.grus_speed = statistics.median(speeds["grus"])
        times.speed_ratio = ratio_interval(speeds["grus"], speeds["native"], speeds["again"])
