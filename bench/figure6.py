"""Crane's figure 6: an encoder's frames per second in a guest that is moved, live, to another QEMU while it runs.

The guest's own PoCL stands in for the card's OpenCL. The encoder prints a line for each frame, which goes to the host at once:
times are the host's, since the guest's clock stands while QEMU stops the guest.
"""

import contextlib
import itertools
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time

import guests
from guests import BUILD, GRUS, HOST, Guest

PROXY = f"tcp:{HOST}:7070"
REQUEST_S = 8  # after the first frame
SECONDS = 40  # in all, by the guest's clock
AFTER_S = 8  # at least


class Frames:
    """When a frame was done, and how many there were by then."""

    def __init__(self):
        self._listening = socket.create_server((HOST, 0))
        self.port = self._listening.getsockname()[1]
        self.seen = []
        self.first = threading.Event()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        line, _ = self._listening.accept()
        with line:
            while received := line.recv(65536).split():
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # else the next waits for that
                if received[-1].isdigit():  # else it is the result
                    self.seen.append((time.time(), int(received[-1])))
                    self.first.set()


@contextlib.contextmanager
def opened(vendor, running, programs):
    """A guest with those workloads, and a proxy; what starts another QEMU that waits for it; the file for `grus vm`."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="grus-bench-")))
        guests.run(GRUS, "keys", folder / "keys", "--host", HOST)
        environment = {**os.environ, "POCL_CACHE_DIR": str(guests.CACHE / "pocl-of-proxy")}
        serve = stack.enter_context(running(GRUS, "serve", "--listen", PROXY, "--keys", folder / "keys", "--shared-cache", "yes",
                                            "--vendors", vendor, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        serve.stdout.readline()
        guests.make_start(folder / "start", folder / "keys", [BUILD / "bin/workloads" / name for name in programs])
        machines = []

        def another(waits=True):
            machines.append(Guest(folder, f"qemu{len(machines)}", folder / "start", tap=guests.make_tap(), waits=waits))
            stack.callback(machines[-1].close)
            _ = machines[-1].shell  # what it says while nobody is connected is lost
            (folder / "vms.toml").write_text("".join(one.table(proxy=PROXY) for one in machines))
            return machines[-1]

        another(waits=False).shell.wait_until_ready(120)
        yield machines[0], another, folder / "vms.toml"


def build_kernels(guest, program):
    """In the guest, and at the proxy."""
    for gpu in ("", f"--gpu {PROXY}"):
        guest.shell.run(f"grus run {gpu} -- {program} --iterations 1 --no-verify", 600)


def migrate(source, destination, file):
    return json.loads(guests.run(GRUS, "vm", "migrate", source.name, "--to", destination.name, "--config", file, "--json"))


def text_of(step, outcome):
    stopped = f", the guest stopped for {outcome['migration']['downtime_ms'] / 1e3:.2f}" if "QEMU" in step["step"] else ""
    return f"{step['step']} ({step['seconds']:.2f} s{stopped})"


def by_second(frames, outcome):
    """What was done in each second, and which steps of the migration began in it."""
    start = frames[0][0]
    gaps = [(when - start, 1e3 * (when - before)) for (before, _), (when, _) in itertools.pairwise(frames)]
    steps = [(outcome["began"] + step["start"] - start, text_of(step, outcome))
             for step in outcome["steps"] if step["side"] == "host"]  # the others' are parts of them
    for second in range(int(frames[-1][0] - start)):
        def inside(pairs, second=second):
            return [what for when, what in pairs if second <= when < second + 1]
        done = [max((count for when, count in frames if when - start < end), default=0) for end in (second, second + 1)]
        row = {"second": second, "frames": done[1] - done[0], "longest_gap_ms": max(inside(gaps), default=0.0)}
        yield row | ({"begins": "; ".join(inside(steps))} if inside(steps) else {})


def measure(options, vendor, running):
    guests.enter_network()
    encoder = f"encoder{' --quick' if options.quick else ''}"
    with opened(vendor, running, ["encoder"]) as (a, another, file):
        b = another()
        build_kernels(a, encoder)
        frames = Frames()
        a.shell.run(f"(grus run -- {encoder} --tell --seconds {SECONDS} 2>&1; echo ended) | busybox tee /run/encoder.out | "
                    f"busybox nc {HOST} {frames.port} > /dev/null 2>&1 &")
        if not frames.first.wait(60):
            raise guests.Failed("no frame came")
        time.sleep(REQUEST_S)
        outcome = migrate(a, b, file)
        until = frames.seen[0][0] + SECONDS
        if time.time() + AFTER_S > until:
            raise guests.Failed(f"the migration took too long for {SECONDS} s: {outcome}")
        said = b.shell.run("until grep -q ended /run/encoder.out; do usleep 100000; done; tail -n 3 /run/encoder.out",
                           SECONDS + 300)
        if "checksum" not in said:
            raise guests.Failed(said)
        yield from by_second(frames.seen, outcome)
