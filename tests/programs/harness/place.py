"""A place to run programs in: one mode and vendor, with folders and caches of its own."""
import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

from moving import Mover
from serving import Server

from .case import Failed

# What a build of Grus with sanitizers or a developer's debugging needs to see.
PASSED_ON = ("GRUS_", "ASAN_", "LSAN_", "TSAN_", "UBSAN_", "LD_PRELOAD")
CACHES = ("home/.cache", "caches")


class Running:
    """The process groups that this driver started and that have not ended."""

    def __init__(self):
        self._groups = set()
        self._closed = False
        self._guard = threading.Lock()  # guards both

    def add(self, group) -> None:
        with self._guard:
            self._groups.add(group)
            closed = self._closed
        if closed:
            self.stop(group)

    def remove(self, group) -> None:
        with self._guard:
            self._groups.discard(group)

    def stop(self, group) -> None:
        with self._guard:
            if group in self._groups:
                os.killpg(group, signal.SIGKILL)

    def stop_all(self) -> None:
        """Also whatever is started later."""
        with self._guard:
            self._closed = True
            for group in self._groups:
                os.killpg(group, signal.SIGKILL)


running = Running()


@dataclass
class Output:
    code: int
    out: str
    err: str


class Place:
    def __init__(self, case, mode, vendor, icd_file, folder, tools, timing=False, fast=False, native=None, through=None,
                 move=False, pause=(0.0, 0.0)):
        self.mode, self.vendor, self.icd_file, self.folder, self.tools = mode, vendor, icd_file, folder, tools
        self.present_as_gpu, self.timing, self.fast = case.present_as_gpu, timing, fast
        self.native = native  # where the same case ran natively, for cases that hand something over
        self.calls = collections.Counter()
        self.wall = self.cpu = 0.0
        self.speed = 0.0  # of its last run, as the program said itself
        self._runs = 0
        self._through, self._server = through, None  # unix or tcp: the devices are behind a server of this place's own
        self.is_long = timing or move  # to be measured, or to be moved often
        self.is_moved, self._pause = move and mode == "grus", pause  # between moves
        self.most_moves = 0  # of one run of the program
        for name in ("work", "tmp", "run", *CACHES):  # OpenCV caches elsewhere if .cache is not there
            (folder / name).mkdir(parents=True)
        (folder / "run").chmod(0o700)

    @property
    def is_behind_server(self) -> bool:
        return self.mode == "grus" and bool(self._through)

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
        for name in CACHES:
            (self.folder / name).mkdir(parents=True)

    def adopt_caches(self, other: "Place", names=("home", "caches")) -> None:
        """Take over what was cached in the other place: the program's cache is in its home."""
        for name in names:
            shutil.rmtree(self.folder / name)
            shutil.copytree(other.folder / name, self.folder / name, symlinks=True)

    def run(self, *command, environment=None, timeout=300, ok=(0,)) -> Output:
        """Run a program to its end; its time counts."""
        self._runs += 1
        calls_file = self.folder / f"calls.{self._runs}"
        report_file = self.folder / f"report.{self._runs}.json"
        command = [str(word) for word in command]
        if self.mode == "grus":
            command = self._grus_prefix(report_file) + command
        environment = self._environment(calls_file) | (environment or {})
        moves = []  # what each said
        with self._moving(environment, moves):
            outcome = self._spawn(command, environment, timeout)
        self.most_moves = max(self.most_moves, len(moves))
        refused = [move["error"] for move in moves if not move["ok"]]
        if refused:
            raise Failed(f"a move was refused: {refused[0]}")
        calls = _read_calls(calls_file)
        self.calls.update(calls)
        if outcome.code not in ok:
            raise Failed(_reason(outcome))
        if self.mode == "grus" and calls:
            _require_all_seen(calls, report_file)
        return outcome

    def close(self) -> None:
        if self._server:
            self._server.__exit__()

    def _moving(self, environment, moves):
        """Moves what runs meanwhile: between two executors of this process, and to a server and back."""
        if not self.is_moved:
            return contextlib.nullcontext()
        if not self._server:
            self._server = Server(self.tools.grus[0], "unix", self.icd_file, environment | {"LAYER_CALLS_FILE": "", "OPENCL_LAYERS": ""}).__enter__()
        return Mover(environment, [{"to": self._server.address}, {"to": "local"}, {"to": "local"}], moves, self._pause)

    def _devices(self) -> list:
        if not self._through:
            return ["--vendors", str(self.icd_file)]
        if not self._server:
            environment = self._environment("") | {"LAYER_CALLS_FILE": ""}
            self._server = Server(self.tools.grus[0], self._through, self.icd_file, environment).__enter__()
        return ["--gpu", self._server.address]

    def _grus_prefix(self, report_file) -> list:
        options = self._devices()
        if not self.timing:
            options += ["--report", str(report_file)]
        if self.present_as_gpu:
            options += ["--present-as", "gpu"]
        return [*self.tools.grus, "run", *options, "--"]

    def _environment(self, calls_file) -> dict:
        home = self.folder / "home"
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(home), "TMPDIR": str(self.folder / "tmp"), "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "XDG_CACHE_HOME": str(home / ".cache"), "XDG_DATA_HOME": str(home / ".local/share"),
            "XDG_CONFIG_HOME": str(home / ".config"), "LAYER_CALLS_FILE": str(calls_file),
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
            try:
                process = subprocess.Popen(command, cwd=self.work, env=environment, stdin=subprocess.DEVNULL,
                                           stdout=out_file, stderr=err_file, start_new_session=True)
            except OSError as error:
                raise Failed(f"can't be started: {error}") from None
            overdue = threading.Event()

            def stop():
                overdue.set()
                running.stop(process.pid)

            running.add(process.pid)
            timer = threading.Timer(timeout, stop)
            timer.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
            finally:
                timer.cancel()
            running.remove(process.pid)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.wall += time.monotonic() - started
        self.cpu += usage.ru_utime + usage.ru_stime
        if overdue.is_set():
            raise Failed(f"no end after {timeout} s")
        return Output(process.returncode, out.read_text(errors="replace"), err.read_text(errors="replace"))


def _read_calls(file) -> collections.Counter:
    """What the counting layer saw of a program that ended by itself: (call, code) -> how often."""
    calls = collections.Counter()
    for line in file.read_text().splitlines() if file.exists() else ():
        call, code, count = line.split()
        calls[call, int(code)] += int(count)
    return calls


def _require_all_seen(calls, report_file) -> None:
    """The program's launches must have gone through Grus, else the comparison would mean nothing."""
    try:
        reports = [json.loads(line) for line in report_file.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise Failed(f"no report from grus run: {error}") from None
    if not reports:
        raise Failed("the program's calls did not go through Grus")
    made = sum(count for (call, _), count in calls.items() if call == "clEnqueueNDRangeKernel")
    seen = sum(report["calls"].get("clEnqueueNDRangeKernel", 0) for report in reports)
    if made != seen:
        raise Failed(f"{made} launches, of which Grus saw {seen}")


def _reason(outcome: Output) -> str:
    how = f"killed by signal {-outcome.code}" if outcome.code < 0 else f"exit status {outcome.code}"
    lines = [line.strip() for line in (outcome.err or outcome.out).splitlines() if line.strip()]
    telling = [line for line in lines if re.search("error|fail|invalid|cannot|unable", line, re.IGNORECASE)] or lines
    return f"{how}: {telling[-1][:160]}" if lines else how
