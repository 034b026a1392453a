"""Wall times, native and Grus interleaved, with the spread that two native runs show against each other."""
import random
import shutil
import statistics
from dataclasses import asdict, dataclass

from .case import Failed, Missing
from .place import Place

RESAMPLES = 2000


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
    cpu_ratio: float = 0.0
    why: str = ""

    def as_dict(self) -> dict:
        return asdict(self)


def ratio_interval(above, below) -> Interval:
    """Ratio of medians, with its 95% interval by resampling the rounds."""
    source = random.Random(1)
    rounds = range(len(above))

    def ratio(chosen):
        return statistics.median(above[i] for i in chosen) / statistics.median(below[i] for i in chosen)

    ratios = sorted(ratio(source.choices(rounds, k=len(above))) for _ in range(RESAMPLES))
    return Interval(ratio(rounds), ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES) - 1])


def measure(case, vendor, tools, folder, repeats) -> Times:
    times = Times(case.name, vendor.name)
    if vendor.name in case.slow or vendor.name not in case.targets:
        times.why = f"not tried: {case.slow.get(vendor.name, 'fails natively')}"
        return times
    here = folder / f"{case.name}-{vendor.name}"
    here.mkdir()
    try:
        icd_file = vendor.icd_file(here)
        tools.add(case)
        places = {
            label: Place(case, mode, vendor, icd_file, here / label, tools, timing=True)
            for label, mode in (("native", "native"), ("grus", "grus"), ("again", "native"))
        }
        _interleave(case, places, repeats, times)
    except (Failed, Missing) as reason:
        times.why = str(reason)
    finally:
        shutil.rmtree(here)
    return times


def _interleave(case, places, repeats, times) -> None:
    walls = {label: [] for label in places}
    cpus = {label: [] for label in places}
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
    times.native_s = statistics.median(walls["native"] + walls["again"])
    times.grus_s = statistics.median(walls["grus"])
    both = [(a + b) / 2 for a, b in zip(walls["native"], walls["again"])]
    times.ratio = ratio_interval(walls["grus"], both)
    times.native_ratio = ratio_interval(walls["native"], walls["again"])
    times.cpu_ratio = statistics.median(cpus["grus"]) / statistics.median(cpus["native"] + cpus["again"])
