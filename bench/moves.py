#!/usr/bin/python3
"""How long a program stops when it moves, against how much memory it has.

The program has buffers of 64 MiB (fewer and smaller if it has less) and works all the time on 4 MiB of the first. It is moved
between a server of this host and this process's own device, with copying while it runs and without ("in the stop").
Stop is how long results waited; round is the longest that one round of the program's took while it moved, of which all but
the stop is the program's own. Medians, and the largest of each.
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


class Program:
    def __init__(self, grus, subject, mib, environment, dirty=DIRTY, before=()):
        self.folder = tempfile.TemporaryDirectory(prefix="grus-moves-")
        environment = environment | {"XDG_RUNTIME_DIR": self.folder.name}
        size = min(BUFFER, mib)
        self.process = subprocess.Popen([*before, grus, "run", "--", subject, "busy", str(mib // size), str(size), str(dirty)],
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

    def move(self, **where):
        answer = self.session.ask(command="move", **where)
        if not answer or not answer["ok"]:
            raise common.Problem(f"it can't be moved: {answer and answer['error']}")
        return answer

    def end(self):
        output, _ = self.process.communicate(timeout=600)
        if not output.strip().endswith("right"):
            raise common.Problem(f"its results are wrong: {output}")
        return json.loads(output.strip().removesuffix("right"))


def measure(chosen, grus, subject, mib, server, environment):
    rows = []
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
    for name, _ in ways:
        stops = [1e3 * move["stop_seconds"] for move in moves[name]]
        whole = [sum(phase["seconds"] for phase in move["phases"]) for move in moves[name]]
        sent = [(move["sent_running"] + move["sent_stopped"]) / 2**20 for move in moves[name]]
        rows.append({"MiB": mib, "copying": name, "moves": len(stops), "stop_ms": statistics.median(stops),
                     "most_ms": max(stops), "drain_ms": statistics.median(1e3 * move["drain_seconds"] for move in moves[name]),
                     "sent_in_stop_MiB": statistics.median(move["sent_stopped"] for move in moves[name]) / 2**20,
                     "sent_MiB": statistics.median(sent), "move_s": statistics.median(whole),
                     "rounds_of_the_program": told["rounds"]})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, action="append", help="memory of the program, again for more; default 64 to 2048")
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
            for mib in chosen.mib or [64, 256, 1024, 2048]:
                rows += measure(chosen, grus, subject, mib, server, environment)
                print(common.table([key.replace("_", " ") for key in rows[0]],
                                   [[common.short(value) if isinstance(value, float) else value for value in row.values()]
                                    for row in rows[-2:]]), flush=True)
    if chosen.json:
        about = common.about(chosen.platform, {"grus": common.first_line([grus, "--version"])})
        chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
