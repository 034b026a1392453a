"""What gMig's authors measured, measured of Grus: fingerprints and samples by themselves, what is in a stop of each workload,
what a stop gains by sending while it fingerprints, and stops over links of 5, 7.5 and 10 Gbit/s. Each row names its table."""

import json
import os
import statistics
import subprocess
import sys

import common
from link import Link
from serving import Server

MOVING = common.ROOT / "tests" / "moves"  # of a checkout only
LINKS = (5e9, 7.5e9, 10e9)  # bit/s
RESIDENT, DIRTY = 256, 32  # MiB of the program that is moved over them
OVERLAPPED = 64  # MiB, all of which changes all the time
PAGE = 4096


def fingerprints(chosen, folder):
    """(device, rows)"""
    command = [common.program("fingerprints"), "--platform", chosen.platform, "--device", chosen.device]
    if chosen.quick:
        command += ["--mib", "32", "--device-mib", "128", "--times", "3"]
    elif "NVIDIA" in chosen.platform:
        command += ["--device-mib", "32768"]
    done = subprocess.run(command, env=common.native_environment(folder), capture_output=True, text=True, timeout=900,
                          check=False)
    if done.returncode:
        raise common.Problem(done.stderr.strip())
    told = json.loads(done.stdout)
    return told["device"], told["rows"]


def in_stop(move):
    """What was copied while results waited: all phases together."""
    phases = [phase for phase in move["phases"] if phase["phase"] in ("last copy", "switch")]
    sums = {key: sum(phase[key] for phase in phases) for key in ("read", "sent", "zero", "never_sent", "sampled")}
    return sums | {"seconds": sum(phase["seconds"] for phase in phases if phase["read"])}


def classes_of(name, moves):
    """The pages that a stop looked at, by what was found; None if there were none."""
    plain = [stop for move, sample in moves if not sample and (stop := in_stop(move))["read"]]
    sampled = [stop for move, sample in moves if sample and (stop := in_stop(move))["read"]]
    first = [phase for move, _ in moves for phase in move["phases"] if phase["phase"] == "first copy" and phase["read"]]
    if not plain or not sampled or not first:
        return None
    read = sum(stop["read"] for stop in sampled)
    shares = {key: sum(stop[key] for stop in sampled) / read for key in ("never_sent", "sampled", "zero")}
    unchanged = 1 - sum(stop["sent"] + stop["zero"] for stop in sampled) / read
    return {"table": "classes", "workload": name, "moves": len(moves), "pages": read // len(sampled) // PAGE, **shares,
            "unchanged": unchanged, "fingerprinted": max(0.0, 1 - unchanged - shares["never_sent"] - shares["sampled"]),
            "zero_first": sum(phase["zero"] for phase in first) / sum(phase["read"] for phase in first),
            **{key: statistics.median(1e9 * stop["seconds"] * PAGE / stop["read"] for stop in stops)
               for key, stops in (("ns_per_page", plain), ("ns_per_page_sampled", sampled))}}


def classes(chosen, folder, workloads, grus):
    """Every workload is moved to and fro with one round of copying, with and without a sample of one byte."""
    from moving import run_and_move  # pylint: disable=import-outside-toplevel
    environment = moving_environment(folder)
    seconds = "2" if chosen.quick else "5"
    rows = []
    progress = common.Progress()
    with Server(grus, "unix", folder, environment, errors=subprocess.DEVNULL) as server:
        places = [{"to": to, "device": chosen.platform, "rounds": 1, "fingerprint": "xxh3", "sample": sample}
                  for sample in (0, 1) for to in (server.address, "local")]
        for workload in workloads:
            progress.show(f"pages in stops of {workload.name}")
            command = [*workload.command(chosen.quick), "--platform", chosen.platform, "--device", chosen.device,
                       "--no-verify", "--seconds", seconds]
            moved = run_and_move(grus, command, places, environment, pause=(0.05, 0.2), after=1.0)
            if moved.status or moved.refused:
                said = moved.refused[0]["error"] if moved.refused else moved.errors.strip()[-300:]
                print(f"{workload.name} can't be moved: {said}")
                continue
            row = classes_of(workload.name, [(move, places[turn % len(places)]["sample"])
                                             for turn, move in enumerate(moved.moves)])
            if row:
                rows.append(row)
            else:
                print(f"{workload.name}: nothing was left for its stops")
    progress.done()
    return rows


def stop_row(moves, bits_per_second, shaped_by, rounds):
    sent = statistics.median(move["sent_stopped"] for move in moves)
    return {"table": "links", "Gbit_per_s": bits_per_second / 1e9, "shaped_by": shaped_by, "rounds": rounds, "moves": len(moves),
            "sent_MiB": sent / 2**20, "stop_ms": 1e3 * statistics.median(move["stop_seconds"] for move in moves),
            "drain_ms": 1e3 * statistics.median(move["drain_seconds"] for move in moves),
            "ideal_ms": 8e3 * sent / bits_per_second}


def stops(chosen, program, server, bits_per_second, paced):
    """One program there and back; the stops of its moves there, without copying before and with one round of it."""
    pace = {"bytes_per_second": int(bits_per_second / 8), "pace_stop": True} if paced else {}
    for rounds in (0, 1):
        moves = []
        for _ in range(3 if chosen.quick else 7):
            order = {"device": chosen.platform, "rounds": rounds}
            moves.append(program.move(to=server.address, **order, **pace))
            program.move(to="local", **order)
        yield stop_row(moves, bits_per_second, "Grus's own pace" if paced else "tbf on a veth pair", rounds)


def links(chosen, folder, grus):
    from moves import Program  # pylint: disable=import-outside-toplevel
    subject = common.program("tests/move_subject")
    environment = moving_environment(folder) | {"SUBJECT_PLATFORM": chosen.platform or "Portable"}
    rows = []
    try:
        with Link() as link:
            link.shape(LINKS[0])
            with (Server(grus, "tcp", folder, environment, before=link.at_server, host=Link.SERVER) as server,
                  Program(grus, subject, RESIDENT, environment, rest=(DIRTY,), before=link.at_client) as program):
                for bits_per_second in LINKS:
                    link.shape(bits_per_second)
                    rows += stops(chosen, program, server, bits_per_second, paced=False)
                program.end()
            return rows
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no link can be made and shaped here, so Grus paces itself: {error}")
    with (Server(grus, "unix", folder, environment) as server,
          Program(grus, subject, RESIDENT, environment, rest=(DIRTY,)) as program):
        for bits_per_second in LINKS:
            rows += stops(chosen, program, server, bits_per_second, paced=True)
        program.end()
    return rows


def overlap(chosen, folder, grus, fingerprinted):
    """Stops in which every page is fingerprinted and sent, at the same time and one after the other, and in which a sample says
    that it has changed, so it is only sent. What fingerprints take by themselves is known."""
    from moves import Program  # pylint: disable=import-outside-toplevel
    environment = moving_environment(folder) | {"SUBJECT_PLATFORM": chosen.platform or "Portable"}
    ways = {"overlapped": {"rounds": 1}, "in_turn": {"rounds": 1, "overlap": False}, "sent_only": {"rounds": 1, "overlap": False, "sample": 4}}
    found = {way: [] for way in ways}
    with (Server(grus, "unix", folder, environment) as server,
          Program(grus, common.program("tests/move_subject"), OVERLAPPED, environment, rest=(OVERLAPPED,)) as program):
        for _ in range(3 if chosen.quick else 9):
            for way, order in ways.items():
                found[way].append(in_stop(program.move(to=server.address, device=chosen.platform, fingerprint="xxh3", **order)))
                program.move(to="local", device=chosen.platform, rounds=0)
        program.end()
    alone = max((row for row in fingerprinted if row.get("kind") == "xxh3" and row["table"] == "fingerprints"), key=lambda row: row["MiB"])
    per_page = {way: statistics.median(1e9 * stop["seconds"] * PAGE / stop["read"] for stop in stops if stop["read"])
                for way, stops in found.items()}
    return [{"table": "overlap", "moves": len(found["overlapped"]), "pages": found["overlapped"][0]["read"] // PAGE,
             **{f"{way}_ns": value for way, value in per_page.items()}, "fingerprinted_ns": alone["ns_per_page"],
             "ideal_ns": max(alone["ns_per_page"], per_page["sent_only"])}]


def moving_environment(folder):
    return {name: value for name, value in os.environ.items() if not name.startswith("GRUS_")} | {
        "GRUS_VENDORS": str(folder), "POCL_MEMORY_LIMIT": "4"}


def measure(chosen, folder, workloads):
    """(device, rows)"""
    grus = common.program("grus", chosen.grus)
    device, rows = fingerprints(chosen, folder)
    if not MOVING.is_dir():
        print("what is in stops, and stops over links, are measured in a checkout only")
        return device, rows
    if str(MOVING) not in sys.path:
        sys.path.append(str(MOVING))
    return device, [*rows, *overlap(chosen, folder, grus, rows), *links(chosen, folder, grus), *classes(chosen, folder, workloads, grus)]
