"""Which workloads there are, what they stand for and how the papers ran them."""

from dataclasses import dataclass, field

import common

FOLDER = common.PROGRAMS / "workloads"


@dataclass(frozen=True)
class Workload:
    name: str
    papers: tuple = ()
    arguments: tuple = ()  # besides the program's defaults
    quick: tuple = ("--quick",)
    label: str = ""
    program: str = field(default="")

    @property
    def path(self):
        return FOLDER / (self.program or self.name)

    def command(self, quick):
        return [str(self.path), *(self.quick if quick else self.arguments)]


def _options(millions):
    return Workload(f"black_scholes_{millions}m", ("virtio-cl",), ("--size", str(millions * 1000000)),
                    ("--size", str(millions * 20000)), program="black_scholes")


SHOC = ("fft", "gemm", "md", "md5_hash", "reduction", "scan", "sort", "bfs", "spmv", "stencil2d", "triad")
VIRTIO_CL = ("fast_walsh", "black_scholes", "mersenne_twister", "mmul", "scan_large_array", "convolution_separable",
             "scalar_product")
LOGV = ("mmul", "lud", "nn", "backprop")
OPTION_COUNTS = (2, 4, 8, 16)

ALL = (
    Workload("mmul", ("logv", "virtio-cl")),
    *(Workload(name, ("logv",)) for name in LOGV if name != "mmul"),
    *(Workload(name, ("virtio-cl",)) for name in VIRTIO_CL if name != "mmul"),
    *(Workload(name, ("crane",)) for name in (*SHOC, "encoder", "cnn")),
    Workload("dirty", ("gmig",)),
    Workload("awkward"),
)
BY_OPTIONS = tuple(_options(millions) for millions in OPTION_COUNTS)


def chosen_workloads(names, paper):
    if names:
        known = {workload.name: workload for workload in (*ALL, *BY_OPTIONS)}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise common.Problem(f"no such workload: {', '.join(unknown)}; there are {', '.join(known)}")
        return [known[name] for name in names]
    if paper:
        extra = BY_OPTIONS if paper == "virtio-cl" else ()
        # Every workload has a pattern of dirty pages to study.
        return [workload for workload in ALL if paper in workload.papers or paper == "gmig"] + list(extra)
    return list(ALL)
