"""A place to run programs in: one mode and vendor, with folders and caches of its own."""
import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

from .case import Failed

# What a build of Grus with sanitizers or a developer's debugging needs to see.
PASSED_ON = ("GRUS_", "ASAN_", "LSAN_", "TSAN_", "UBSAN_", "LD_PRELOAD")


@dataclass
class Output:
    code: int
    out: str
    err: str


class Place:
    def __init__(self, mode, vendor, icd_file, folder, tools, present_as_gpu=False, timing=False, fast=False, native=None):
        self.mode, self.vendor, self.icd_file, self.folder, self.tools = mode, vendor, icd_file, folder, tools
        self.present_as_gpu, self.timing, self.fast = present_as_gpu, timing, fast
        self.native = native  # where the same case ran natively, for cases that hand something over
        self.calls = collections.Counter()
        self.wall = self.cpu = 0.0
        self._runs = 0
        for name in ("home", "work", "tmp", "run", "caches"):
            (folder / name).mkdir(parents=True)
        (folder / "run").chmod(0o700)

    @property
    def work(self) -> pathlib.Path:
        return self.folder / "work"

    def program(self, source: str) -> str:
        """Our own program, built from source."""
        return str(self.tools.built(source))

    def forget(self) -> None:
        """Empty every cache, the program's and the vendor's: what follows is cold."""
        for name in ("home", "caches"):
            shutil.rmtree(self.folder / name)
            (self.folder / name).mkdir()

    def adopt_home(self, other: "Place") -> None:
        shutil.rmtree(self.folder / "home")
        shutil.copytree(other.folder / "home", self.folder / "home")

    def run(self, *command, environment=None, timeout=300, ok=(0,)) -> Output:
        """Run a program to its end; its time counts."""
        self._runs += 1
        calls_file = self.folder / f"calls.{self._runs}"
        report_file = self.folder / f"report.{self._runs}.json"
        command = [str(word) for word in command]
        if self.mode == "grus":
            command = self._grus_prefix(report_file) + command
        outcome = self._spawn(command, self._environment(calls_file) | (environment or {}), timeout)
        self._count_calls(calls_file)
        if outcome.code not in ok:
            raise Failed(_reason(outcome))
        if self.mode == "grus":
            _require_report(report_file)
        return outcome

    def _grus_prefix(self, report_file) -> list:
        options = ["--vendors", str(self.icd_file), "--report", str(report_file)]
        if self.present_as_gpu:
            options += ["--present-as", "gpu"]
        return [*self.tools.grus, "run", *options, "--"]

    def _environment(self, calls_file) -> dict:
        home = self.folder / "home"
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8", "HOME": str(home), "TMPDIR": str(self.folder / "tmp"),
            "XDG_CACHE_HOME": str(home / ".cache"), "XDG_DATA_HOME": str(home / ".local/share"),
            "XDG_CONFIG_HOME": str(home / ".config"), "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "PYTHONDONTWRITEBYTECODE": "1", "LAYER_CALLS_FILE": str(calls_file),
        }
        environment |= self.vendor.private_environment(self.folder / "caches")
        layers = [] if self.timing else [self.tools.built("layer_calls.cpp")]
        if self.mode == "grus":
            environment |= {key: value for key, value in os.environ.items() if key.startswith(PASSED_ON)}
        else:
            environment["OCL_ICD_VENDORS"] = str(self.icd_file)
            if self.present_as_gpu:
                layers.append(self.tools.built("layer_gpu.c"))
        if layers:
            environment["OPENCL_LAYERS"] = ":".join(map(str, layers))
        return environment

    def _spawn(self, command, environment, timeout) -> Output:
        out, err = self.folder / "stdout", self.folder / "stderr"
        started = time.monotonic()
        with open(out, "wb") as out_file, open(err, "wb") as err_file:
            process = subprocess.Popen(command, cwd=self.work, env=environment, stdin=subprocess.DEVNULL, stdout=out_file,
                                       stderr=err_file, start_new_session=True)
            overdue = threading.Event()

            def stop():
                overdue.set()
                os.killpg(process.pid, signal.SIGKILL)  # the group that this call started

            timer = threading.Timer(timeout, stop)
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        self.wall += time.monotonic() - started
        self.cpu += usage.ru_utime + usage.ru_stime
        if overdue.is_set():
            raise Failed(f"no end after {timeout} s")
        return Output(process.returncode, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def _count_calls(self, calls_file) -> None:
        if not calls_file.exists():
            return
        for line in calls_file.read_text().splitlines():
            call, code, count = line.split()
            self.calls[call, int(code)] += int(count)


def _require_report(file) -> None:
    """grus run writes a report when the program went through it; without one the comparison would mean nothing."""
    try:
        json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise Failed(f"no report from grus run: {error}") from None


def _reason(outcome: Output) -> str:
    how = f"killed by signal {-outcome.code}" if outcome.code < 0 else f"exit status {outcome.code}"
    lines = [line.strip() for line in (outcome.err or outcome.out).splitlines() if line.strip()]
    return f"{how}: {lines[-1][:160]}" if lines else how
