"""What the runs share: the grus command, and our own programs, each built once."""
import pathlib
import shutil
import subprocess
import threading

from .case import Missing

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src"
LAYERS = {
    "layer_calls.cpp": ["-std=c++20", "-shared", "-fPIC", "-DCL_TARGET_OPENCL_VERSION=300"],
    "layer_gpu.c": ["-shared", "-fPIC", "-DCL_TARGET_OPENCL_VERSION=300"],
}


class Tools:
    def __init__(self, grus, folder: pathlib.Path):
        self.grus = grus
        self.folder = folder
        self._flags = {name: (flags, ("opencl-c-headers", "g++")) for name, flags in LAYERS.items()}
        self._locks = {}
        self._failures = {}
        self._guard = threading.Lock()  # guards _locks and _failures

    def add(self, case) -> None:
        """Say how to build the case's own programs, and check that the others are installed."""
        for source, flags in case.sources.items():
            self._flags[source] = (flags, case.packages)
        for program in case.programs:
            if not shutil.which(program):
                raise Missing(f"no {program}: install {' '.join(case.packages)}")
        for source in case.sources:
            self.built(source)
        for layer in LAYERS:
            self.built(layer)

    def built(self, source: str) -> pathlib.Path:
        if source.endswith(".py"):
            return SOURCES / source
        flags, packages = self._flags[source]
        target = self.folder / source.replace(".", "_")
        with self._guard:
            lock = self._locks.setdefault(source, threading.Lock())
        with lock:
            if source in self._failures:
                raise Missing(self._failures[source])
            if not target.exists():
                self._build(source, flags, packages, target)
        return target

    def _build(self, source, flags, packages, target) -> None:
        compiler = "g++" if source.endswith(".cpp") else "gcc"
        if not shutil.which(compiler):
            raise Missing(f"no {compiler}: install g++")
        command = [compiler, "-O1", "-w", str(SOURCES / source), "-o", str(target), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:160])
            self._failures[source] = f"can't build {source} ({first.strip()}): install {' '.join(packages)}"
            raise Missing(self._failures[source])
