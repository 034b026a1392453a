#!/usr/bin/python3
"""How long a program stops when it moves, against how much memory it has. Medians, and the largest of each.

sizes      The program has buffers of 64 MiB (fewer and smaller if it has less) and works all the time on 4 MiB of the first. It
           is moved between a server of this host and this process's own device, with copying while it runs and without
           ("in the stop"). Stop is how long results waited.
pages      The same with one buffer, of which 4 MiB are worked on, moved from this process's own device to a server (the way
           back isn't counted): with the system's kernel watching which pages are written, with fingerprints, and in the stop.
scattered  Kernels of 5 ms dirty one in a hundred pages per second, all over the memory. Its speed while it is copied is
           compared with its speed before.
suspended  Everything goes to host memory and back. Preparing is making room there, while the program runs. It is suspended when
           the device has nothing of it any more, and resumed when it goes on; what it was kept in is given back after that.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import common
from serving import Server

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests/moves"))
from moving import Session  # noqa: E402

DIRTY = 4
BUFFER = 64
KERNEL_MS = 5


class Program:
    def __init__(self, grus, subject, mib, environment, kind="busy", rest=(DIRTY,), before=(), buffer=BUFFER):
        self.folder = tempfile.TemporaryDirectory(prefix="grus-moves-")
        environment = environment | {"XDG_RUNTIME_DIR": self.folder.name}
        size = min(buffer, mib)
        self.process = subprocess.Popen([*before, grus, "run", "--", subject, kind, *map(str, (mib // size, size, *rest))],
                                        env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.session = Session(self.process.pid, environment)

    def __enter__(self):
        if self.process.stdout.readline() != "ready\n":
            raise common.Problem("the program didn't start")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stdin.close()
        self.folder.cleanup()

    def ask(self, command, **where):
        answer = self.session.ask(command=command, **where)
        if not answer or not answer["ok"]:
            raise common.Problem(f"{command} failed: {answer and answer['error']}")
        return answer

    def move(self, **where):
        return self.ask("move", **where)

    def end(self):
        output, _ = self.process.communicate(timeout=600)
        if not output.strip().endswith("right"):
            raise common.Problem(f"its results are wrong: {output}")
        return json.loads(output.strip().removesuffix("right"))


def row_of(mib, name, moves, told):
    stops = [1e3 * move["stop_seconds"] for move in moves]
    whole = [sum(phase["seconds"] for phase in move["phases"]) for move in moves]
    sent = [(move["sent_running"] + move["sent_stopped"]) / 2**20 for move in moves]
    return {"MiB": mib, "copying": name, "moves": len(stops), "stop_ms": statistics.median(stops), "most_ms": max(stops),
            "drain_ms": statistics.median(1e3 * move["drain_seconds"] for move in moves),
            "sent_in_stop_MiB": statistics.median(move["sent_stopped"] for move in moves) / 2**20,
            "sent_MiB": statistics.median(sent), "move_s": statistics.median(whole), "rounds_of_the_program": told["rounds"]}


def pages(chosen, grus, subject, mib, server, environment):
    ways = {"pages watched by the system": {"fingerprint": "system"}, "pages fingerprinted": {"fingerprint": "xxh3"},
            "in the stop": {"rounds": 0}}
    moves = {name: [] for name in ways}
    with Program(grus, subject, mib, environment, buffer=mib) as program:
        for turn in range(chosen.rounds):
            for name in list(ways)[::1 if turn % 2 else -1]:
                moves[name].append(program.move(to=server.address, device=chosen.platform, **ways[name]))
                if moves[name][-1]["plan"]["notes"]:
                    raise common.Problem(moves[name][-1]["plan"]["notes"][0])
                time.sleep(0.05)
                program.move(to="local", device=chosen.platform)
                time.sleep(0.05)
        told = program.end()
    return [row_of(mib, name, of, told) for name, of in moves.items()]


def sizes(chosen, grus, subject, mib, server, environment):
    ways = [("copied before", {}), ("in the stop", {"rounds": 0})]
    moves = {name: [] for name, _ in ways}
    with Program(grus, subject, mib, environment) as program:
        places = [{"to": server.address}, {"to": "local"}]
        for turn in range(chosen.rounds):
            for name, options in ways if turn % 2 else ways[::-1]:
                for place in places:  # there and back
                    moves[name].append(program.move(**place, device=chosen.platform, **options))
                    time.sleep(0.05)
        told = program.end()
    return [row_of(mib, name, moves[name], told) for name, _ in ways]


def in_phases(move, first, last=None):
    """From the beginning of one phase to the end of another, in seconds from the move's beginning."""
    of = [phase for phase in move["phases"] if phase["phase"] in (first, last or first)]
    return of[0]["start"], of[-1]["start"] + of[-1]["seconds"]


def launches(told, start, end):
    """How many there were per second, between two moments."""
    first, last = (int(10 * (moment - told["start"])) for moment in (start, end))
    return 10 * statistics.mean(told["tenths"][first + 1:last] or [0])


def scattered(chosen, grus, subject, mib, server, environment):
    """To another context of the same device, to a server, and back."""
    pages_per_launch = round(0.01 * mib * 256 * KERNEL_MS / 1000)
    moves = []
    with Program(grus, subject, mib, environment, "scattered", (pages_per_launch, KERNEL_MS)) as program:
        for _ in range(chosen.rounds):
            for name, to in (("another context", "local"), ("a server", server.address), ("from the server", "local")):
                time.sleep(2)
                start = time.monotonic()
                moves.append((name, start, program.move(to=to, device=chosen.platform)))
        told = program.end()
    rows = []
    for name in dict.fromkeys(name for name, _, _ in moves):
        of = [(start, move) for one, start, move in moves if one == name]
        speeds, rates = [], []
        for start, move in of:
            first, last = in_phases(move, "first copy", "copy again")
            speeds.append(launches(told, start + first, start + last) / launches(told, start - 1.8, start))
            first, last = in_phases(move, "first copy")
            rates.append(move["phases"][[phase["phase"] for phase in move["phases"]].index("first copy")]["read"]
                         / (last - first) / 1e9)
        stops = [1e3 * move["stop_seconds"] for _, move in of]
        rows.append({"MiB": mib, "to": name, "moves": len(of), "stop_ms": statistics.median(stops), "most_ms": max(stops),
                     "drain_ms": statistics.median(1e3 * move["drain_seconds"] for _, move in of),
                     "sent_in_stop_MiB": statistics.median(move["sent_stopped"] for _, move in of) / 2**20,
                     "first_copy_GB/s": statistics.median(rates), "program_meanwhile": statistics.median(speeds),
                     "launches_per_s_before": statistics.median(launches(told, start - 1.8, start) for start, _ in of)})
    return rows


def suspended(chosen, grus, subject, mib, _, environment):
    rows = []
    with Program(grus, subject, mib, environment) as program:
        for _ in range(chosen.rounds):
            time.sleep(0.2)
            out, back = program.ask("suspend"), program.ask("resume", device=chosen.platform)
            prepared = sum(phase["seconds"] for phase in out["phases"] if phase["phase"] in ("plan", "prepare"))
            whole = [sum(phase["seconds"] for phase in answer["phases"]) for answer in (out, back)]
            given_back = back["phases"][-1]["seconds"]
            rows.append((prepared, whole[0] - prepared, out["stop_seconds"], whole[1] - given_back, given_back))
        program.end()
    names = ("prepared_s", "suspended_s", "stop_until_suspended_s", "resumed_s", "given_back_s")
    medians = dict(zip(names, (statistics.median(column) for column in zip(*rows))))
    return [{"MiB": mib, "times": len(rows), **medians, "suspended_and_resumed_s": medians["suspended_s"] + medians["resumed_s"]}]


PARTS = {"sizes": sizes, "pages": pages, "scattered": scattered, "suspended": suspended}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, default="sizes", help="what is measured; default sizes")
    parser.add_argument("--mib", type=int, action="append", help="memory of the program, again for more; default 64 to 2048, of pages 64 and 1024")
    parser.add_argument("--rounds", type=int, default=5, help="moves there and back, of each kind and size; default 5")
    parser.add_argument("--platform", default="Portable", help="part of the platform's name")
    parser.add_argument("--vendors", default=f"{common.DEFAULT_VENDORS}/pocl.icd", help="drivers, here and at the server")
    parser.add_argument("--grus", help="the command; default the build's")
    parser.add_argument("--subject", help="the program; default the build's")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    chosen = parser.parse_args()
    grus, subject = common.program("grus", chosen.grus), common.program("tests/move_subject", chosen.subject)
    rows = []
    with common.vendors_folder(chosen.vendors) as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRUS_")}
        environment |= {"GRUS_VENDORS": str(folder), "SUBJECT_PLATFORM": chosen.platform, "POCL_MEMORY_LIMIT": "12"}
        with Server(grus, "unix", folder, environment) as server:
            for mib in chosen.mib or ([64, 1024] if chosen.part == "pages" else [64, 256, 1024, 2048]):
                new = PARTS[chosen.part](chosen, grus, subject, mib, server, environment)
                print(common.table([key.replace("_", " ") for key in new[0]],
                                   [[common.short(value) if isinstance(value, float) else value for value in row.values()]
                                    for row in new]), flush=True)
                rows += new
    if chosen.json:
        about = common.about(chosen.platform, {"grus": common.first_line([grus, "--version"])})
        chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
