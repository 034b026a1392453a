"""The moves that Crane's and LoGV's authors measured, made by Grus. Every result is compared with that of a native run."""

import contextlib
import glob
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

import common
from harness.gmig import MOVING, moving_environment
from harness.measure import TIMEOUT_S, Broken, spread
from harness.workloads import FOLDER
from link import Link
from serving import Server, wait_for

# Sizes besides the defaults, and for how many seconds they work on a device.
CRANE = {"encoder": ([], 15), "cnn": (["--size", "320"], 40), "water": (["8", "4000"], 40)}  # 256 MB; 512 molecules
LOGV = {"mmul": 2.8, "lud": 0.66}  # 48 and 39 MiB; for how many seconds the device works on a round, at most
LOGV_WAYS = {"copied before": {}, "in the stop": {"rounds": 0}}
LOGV_BYTES_PER_SECOND = 100_000_000
MIB = 2**20


@dataclass
class Run:
    seconds: float
    told: dict  # by the program
    has: dict  # objects and memory, before it was moved
    moves: list


class NotThere(Exception):
    """It isn't measured here."""


class Subject:
    """A workload that was run natively for so many seconds, and is now run through Grus."""

    def __init__(self, chosen, folder, name, sizes, seconds, before=()):
        self.name, self.before = name, before
        self.grus, self.environment = common.program("grus", chosen.grus), moving_environment(folder)
        self.command = self._command(chosen, sizes)
        self.seconds = min(seconds, 2) if chosen.quick else seconds
        # What is built at first is then in the driver's cache.
        native = subprocess.run([*self.command, *self._length(f"{self.seconds}")], env=common.native_environment(folder),
                                capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.native, self.checksum = self._result(native.returncode, native.stdout, native.stderr)

    def _command(self, chosen, sizes):
        return [str(FOLDER / self.name), *(["--quick"] if chosen.quick else sizes), "--platform", chosen.platform, "--device",
                chosen.device, "--no-verify"]

    @staticmethod
    def _length(seconds):
        return ["--seconds", seconds]

    def as_long_as_natively(self):
        """The result depends on it."""
        self.command += ["--iterations", str(self.native["iterations"])]

    def _result(self, status, output, errors):
        lines = output.strip().splitlines()
        if status or len(lines) < 2 or not lines[-1].startswith("checksum "):
            raise Broken(f"{self.name} ended with {status}: {errors.strip()[-1000:]}")
        return json.loads(lines[-2]), lines[-1].split()[1]

    def run(self, places, pause):
        """Waits before each move, and makes those that there is time for."""
        from moving import Session  # pylint: disable=import-outside-toplevel
        start = time.monotonic()
        with subprocess.Popen([*self.before, str(self.grus), "run", "--", *self.command], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            watchdog = threading.Timer(TIMEOUT_S, process.kill)  # which ends what waits for an answer, too
            watchdog.start()
            try:
                session = Session(process.pid, self.environment)
                self._wait_until_made(process, session)
                has, moves = {}, []
                for place in places or [None]:  # a run without a move waits as the others do
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(pause)
                    has = has or session.ask(command="describe") or {}
                    answer = session.ask(command="move", **place) if place else None
                    if answer is None or answer.get("error") == "cancelled":  # as it is when the program ends
                        break
                    if not answer["ok"]:
                        raise Broken(f"{self.name} can't be moved: {answer['error']}")
                    moves.append(answer)
                output, errors = process.communicate()
                seconds = time.monotonic() - start
            finally:
                watchdog.cancel()
                process.kill()
        told, checksum = self._result(process.returncode, output, errors)
        if checksum != self.checksum:
            raise Broken(f"WRONG RESULT: {self.name} with {len(moves)} moves gives {checksum}, natively {self.checksum}")
        return Run(seconds, told, has, moves)

    def _wait_until_made(self, process, session):
        """Until it has memory and kernels."""
        def is_made():
            has = session.ask(command="describe")
            return process.poll() is not None or has and has["memory_bytes"] and has["objects"]["kernel"]
        if not wait_for(is_made, seconds=TIMEOUT_S) or process.poll() is not None:
            raise Broken(f"{self.name} ended before it could be moved: {process.communicate()[1].strip()[-1000:]}")


class Water(Subject):
    """OpenMM, the engine of FAHBench: water with PME. Positions are the same in every run."""

    SOURCE = common.ROOT / "tests/programs/src/openmm_energies.cpp"

    def _command(self, chosen, sizes):
        plugins = glob.glob("/usr/lib/*/openmm/plugins")
        if not plugins:
            raise NotThere("OpenMM isn't there: install libopenmm-dev and libopenmm-plugins")
        self._folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with  # lives as long as this does
        program = f"{self._folder.name}/openmm_energies"
        built = subprocess.run(["g++", "-std=c++20", "-O2", f'-DOPENMM_PLUGINS="{plugins[0]}"', self.SOURCE, "-lOpenMM", "-o", program],
                               capture_output=True, text=True, check=False)
        if built.returncode:
            raise Broken(f"OpenMM's program can't be built: {built.stderr.strip()[-1000:]}")
        return [program, "water", *(["4", "40"] if chosen.quick else sizes)]

    @staticmethod
    def _length(seconds):
        return []  # it goes so many steps

    def as_long_as_natively(self):
        pass

    def _result(self, status, output, errors):
        lines = [line.split() for line in output.splitlines()]
        if status or not any(words[:1] == ["step"] for words in lines):
            raise Broken(f"OpenMM ended with {status}: {errors.strip()[-1000:]}")
        words_of = {kind: [words[1:] for words in lines if words[:1] == [kind]] for kind in ("device", "step")}
        return {"device": " ".join(words_of["device"][0])}, "; ".join(" ".join(words[6:]) for words in words_of["step"])


def medians(moves):
    """Of moves in one direction; None if there were none."""
    return {name: statistics.median(map(of, moves)) if moves else None for name, of in (
        ("stop_s", lambda move: move["stop_seconds"]), ("drain_s", lambda move: move["drain_seconds"]),
        ("running_MiB", lambda move: move["sent_running"] / MIB), ("stopped_MiB", lambda move: move["sent_stopped"] / MIB),
        ("move_s", lambda move: sum(phase["seconds"] for phase in move["phases"])))}


def crane_rows(chosen, folder, name):
    """To a server and back, again and again, in one run."""
    subject = (Water if name == "water" else Subject)(chosen, folder, name, *CRANE[name])
    subject.as_long_as_natively()
    times = 2 if chosen.quick else 5
    with Server(subject.grus, "unix", folder, subject.environment) as server:
        places = [{"to": to, "device": chosen.platform} for to in (server.address, "local")] * times
        run = subject.run(places, subject.seconds / (2 * len(places)))
    if len(run.moves) < 2:
        raise Broken(f"{name} ended before it was moved there and back")
    return subject.native["device"], [{"objects": run.has["objects"], "MiB": run.has["memory_bytes"] / MIB,
                                       "image_MiB": run.has["image_bytes"] / MIB, "moves": len(run.moves),
                                       "there": medians(run.moves[::2]), "back": medians(run.moves[1::2])}]


@contextlib.contextmanager
def distant_server(grus, folder, environment):
    """(where to move, what a program is started with to reach it, what makes it slow)"""
    with contextlib.ExitStack() as stack:
        try:
            link = stack.enter_context(Link())
            link.shape(8 * LOGV_BYTES_PER_SECOND)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no link can be made and shaped here, so Grus paces itself: {error}")
            server = stack.enter_context(Server(grus, "unix", folder, environment))
            yield {"to": server.address, "bytes_per_second": LOGV_BYTES_PER_SECOND, "pace_stop": True}, (), "Grus's own pace"
            return
        server = stack.enter_context(Server(grus, "tcp", folder, environment, before=link.at_server, host=Link.SERVER))
        yield {"to": server.address}, link.at_client, "tbf on a veth pair"


def round_s(told):
    """How long a round takes."""
    return (told["seconds"]["to_device"] + told["seconds"]["kernels"]) / told["iterations"]


def logv_rows(chosen, folder, name):
    """Without a move and with one, in turns. It waits for each round, so that there is something left to move after the kernel
    that runs. For programs of equal lengths and unequal rounds, those that are missing count as a delay."""
    delays, moves = {name: [] for name in LOGV_WAYS}, {name: [] for name in LOGV_WAYS}
    unmoved = []
    with distant_server(common.program("grus", chosen.grus), folder, moving_environment(folder)) as (place, before, shaped_by):
        subject = Subject(chosen, folder, name, [], LOGV[name], before)
        if (part := LOGV[name] / round_s(subject.native)) < 1:
            subject = Subject(chosen, folder, name, ["--part", f"{part:.4f}"], LOGV[name], before)
        subject.command += ["--seconds", str(max(subject.seconds, 2.5 * round_s(subject.native)))]
        ways = {"": [], **{way: [place | options | {"device": chosen.platform}] for way, options in LOGV_WAYS.items()}}
        pause = min(subject.seconds, round_s(subject.native)) / 4
        for turn in range(2 if chosen.quick else 5):
            order = list(ways)[turn % len(ways):] + list(ways)[:turn % len(ways)]
            taken = {way: subject.run(ways[way], pause) for way in order}
            unmoved.append(taken[""])
            for way in LOGV_WAYS:
                less = taken[""].told["iterations"] - taken[way].told["iterations"]
                delays[way].append(1e3 * (taken[way].seconds - taken[""].seconds + less * round_s(taken[""].told)))
                moves[way] += taken[way].moves
    return subject.native["device"], [
        {"MiB": max(one.has.get("memory_bytes", 0) for one in unmoved) / MIB, "shaped_by": shaped_by, "copying": way, "turns": len(unmoved),
         "moves": len(moves[way]), "kernel_s": statistics.median(round_s(one.told) for one in unmoved),
         "unmoved_s": statistics.median(one.seconds for one in unmoved),
         **dict(zip(("delay_ms", "delay_low_ms", "delay_high_ms"), spread(delays[way]))), **medians(moves[way])}
        for way in LOGV_WAYS]


PAPERS = {"crane": (CRANE, crane_rows), "logv": (LOGV, logv_rows)}


def measure(chosen, folder, paper, names):
    """(device, rows): of those of the workloads that the paper moved. A row of one that failed says why, as `broken`."""
    if not MOVING.is_dir():
        print("moves are measured in a checkout only")
        return "", []
    if str(MOVING) not in sys.path:
        sys.path.append(str(MOVING))
    moved, rows_of = PAPERS[paper]
    device, rows = "", []
    for name in (name for name in moved if name in names):
        print(f"moving {name}", flush=True)
        try:
            device, found = rows_of(chosen, folder, name)
        except Broken as broken:
            print(broken, flush=True)
            found = [{"broken": str(broken)}]
        except NotThere as missing:
            print(missing, flush=True)
            continue
        rows += [{"table": "moves", "workload": name, **row} for row in found]
    return device, rows
