#!/usr/bin/python3
"""What a session costs in memory while it does nothing: many programs, each of which has used a device of one server and
now waits. Memory is the proportional set size: what processes share is divided among them. A program's part is what it has
more than one that uses no OpenCL at all. And how long a program takes to have a context and a queue, from its first call:
natively, and with a server whose next worker is ready, in turns.

Exit status: 0 measured, 2 couldn't measure.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import common
from serving import Server, wait_for

MIB = 1 << 20
FIELDS = {"Pss": "all", "Private_Clean": "own", "Private_Dirty": "own"}


def memory_of(pid):
    """MiB: all of the process's, and what no other process shares."""
    found = {"all": 0.0, "own": 0.0}
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split(":", 1)
            if name in FIELDS:
                found[FIELDS[name]] += int(value.split()[0]) * 1024 / MIB
    except OSError as error:
        raise common.Problem(f"the memory of process {pid} can't be read: {error}") from error
    return found


@contextlib.contextmanager
def idle_programs(command, count, environment):
    """As many of them, ready."""
    programs = []
    try:
        for _ in range(count):
            programs.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        said = [program.stdout.readline().strip() for program in programs]
        if not all(said):
            raise common.Problem(f"{' '.join(map(str, command))}: it didn't get ready")
        yield programs, said[0].split("\t")
    finally:
        for program in programs:
            program.stdin.close()
        for program in programs:
            program.wait()
            program.stdout.close()


def program_of(pid):
    """`grus run` becomes the program, or starts it."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid


def measure(grus, idle, kind, count, vendors):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRUS_")}
    # In its sandbox, a worker's memory is for root alone to look at.
    options = [] if os.geteuid() == 0 else ["--no-sandbox"]
    with Server(grus, kind, vendors, environment, options) as server:
        with idle_programs([idle, "--without"], count, environment) as (programs, _):
            without = statistics.median(memory_of(program.pid)["all"] for program in programs)
        ready = set(server.workers())
        command = [grus, "run", "--gpu", server.address, "--", idle]
        with idle_programs(command, 1, environment):  # so that no driver has to compile from here on
            pass
        wait_for(lambda: len(server.workers()) == len(ready))
        with idle_programs(command, count, environment) as (programs, device):
            workers = [memory_of(pid) for pid in server.workers()]
            clients = [memory_of(program_of(program.pid))["all"] - without for program in programs]
    if len(workers) != count + len(ready):
        raise common.Problem(f"{count} sessions have {len(workers)} workers")
    # The one that waits for the next program has no session: it is the smallest.
    workers = sorted(workers, key=lambda memory: memory["all"])[len(ready):]
    row = {"name": f"an idle session, {kind}", "sessions": count,
           "worker_MiB": statistics.median(memory["all"] for memory in workers),
           "most": max(memory["all"] for memory in workers),
           "worker_alone_MiB": statistics.median(memory["own"] for memory in workers),
           "program_MiB": statistics.median(clients)}
    return row, device


def set_up(command, environment):
    """Milliseconds."""
    done = subprocess.run([*command, "--set-up"], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise common.Problem(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return float(done.stdout.split("\t")[2])


def measure_set_up(grus, idle, rounds, pause, vendors):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRUS_")}
    native = environment | {"OCL_ICD_VENDORS": f"{vendors}/"}
    with Server(grus, "unix", vendors, environment) as local, Server(grus, "tcp", vendors, environment) as tcp:
        taken = {"native": [], "unix": [], "tcp": []}
        for _ in range(rounds):
            time.sleep(pause)  # servers have the next worker ready then
            taken["native"].append(set_up([idle], native))
            for server in (local, tcp):
                taken[server.kind].append(set_up([grus, "run", "--gpu", server.address, "--", idle], environment))
    middle = {kind: statistics.median(values) for kind, values in taken.items()}
    return [{"name": f"a context and a queue, {kind}", "native_ms": middle["native"], "ms": middle[kind],
             "spread": [min(taken[kind]), max(taken[kind])], "ratio": middle[kind] / middle["native"], "limit": 1.0,
             "verdict": "ok" if middle[kind] <= middle["native"] else "MISSED"} for kind in ("unix", "tcp")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=16, help="at once; default 16")
    parser.add_argument("--rounds", type=int, default=10, help="of what a program takes to be set up; default 10")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two of them; default 1")
    parser.add_argument("--vendors", default=f"{common.DEFAULT_VENDORS}/pocl.icd", help="drivers that the server offers")
    parser.add_argument("--grus", help="the command; default the build's")
    parser.add_argument("--idle", help="the program; default the build's")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    chosen = parser.parse_args()
    grus, idle = common.program("grus", chosen.grus), common.program("idle", chosen.idle)
    rows = []
    with common.vendors_folder(chosen.vendors) as folder:
        for kind in ("unix", "tcp"):
            row, device = measure(grus, idle, kind, chosen.sessions, folder)
            rows.append(row)
        times = measure_set_up(grus, idle, chosen.rounds, chosen.pause, folder)
    header = ["", "sessions", "worker MiB", "most", "not shared", "program MiB"]
    print(common.table(header, [[common.short(value) if isinstance(value, float) else value for value in row.values()]
                                for row in rows]))
    print()
    print(common.table(["", "native ms", "ms", "spread", "ratio", "limit", "verdict"],
                       [[common.short(value) if isinstance(value, float) else str(value) for value in row.values()]
                        for row in times]))
    rows += times
    if chosen.json:
        name, driver = device
        about = common.about(name, {"driver": driver, "grus": common.first_line([grus, "--version"])})
        chosen.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    common.main(main)
