"""Programs that are moved while they run: how to start one, and how to tell it to move."""

import contextlib
import json
import os
import pathlib
import random
import socket
import subprocess
import threading
import time


def runtime_folder(environment):
    folder = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return pathlib.Path(folder) / "grus" if os.path.isdir(folder) else pathlib.Path(f"/tmp/grus-{os.getuid()}")


class Session:
    """A program under Grus, by its process id."""

    def __init__(self, pid, environment):
        self.path = runtime_folder(environment) / f"session-{pid}.sock"

    def ask(self, **request):
        """The last line of the answer; None if the program is not there (yet, or any more)."""
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(self.path))
                line.sendall(json.dumps(request).encode() + b"\n")
                for answer in line.makefile():
                    answer = json.loads(answer)
                    if "ok" in answer:
                        return answer
        except (OSError, ValueError):
            pass
        return None

    def watch(self, **request):
        """All that is told meanwhile, and the answer. Who closes this before goes away, which cancels the request."""
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.path))
            line.sendall(json.dumps(request).encode() + b"\n")
            with line.makefile() as told:
                yield from map(json.loads, told)

    def cancel_in(self, phase, **request):
        """Goes away as soon as it is in that phase. Whether it ever was."""
        with contextlib.closing(self.watch(**request)) as told:
            return any(one.get("phase") == phase for one in told)


def is_over(answer):
    """Whether the program ended meanwhile, which cancels its move, or refuses it. Nobody else does who uses this."""
    return answer.get("error") in ("cancelled", "the program is ending")


class Moved:
    """What came of a run: its output, its exit status, and what each move said."""

    def __init__(self, status, output, errors, moves):
        self.status, self.output, self.errors, self.moves = status, output, errors, moves

    @property
    def done(self):
        return [move for move in self.moves if move["ok"]]

    @property
    def refused(self):
        return [move for move in self.moves if not move["ok"]]


def run_and_move(grus, program, places, environment=None, pause=(0.0, 0.05), most=10**9, timeout=120, options=(),
                 order=None, after=0.0):
    """Runs it and moves it from place to place, each a dictionary such as {"to": "unix:…"}, until it ends."""
    environment = dict(os.environ if environment is None else environment)
    chance = random.Random(order if order is not None else time.time_ns())
    child = subprocess.Popen([str(grus), "run", *options, "--", *map(str, program)], env=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    moves = []

    def move():
        session = Session(child.pid, environment)  # `grus run` becomes the program
        time.sleep(after)
        while child.poll() is None and len(moves) < most:
            answer = session.ask(command="move", **places[len(moves) % len(places)])
            if answer is None or is_over(answer):
                time.sleep(0.005)
                continue
            if answer["ok"] and not answer["plan"]["objects"]:
                time.sleep(0.001)  # before it made anything
                continue
            moves.append(answer)
            time.sleep(chance.uniform(*pause))

    mover = threading.Thread(target=move)
    mover.start()
    try:
        output, errors = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        subprocess.run(["gdb", "-p", str(child.pid), "-batch", "-ex", "thread apply all bt 12"], check=False)
        child.kill()
        output, errors = child.communicate()
        errors += f"\nkilled after {timeout} s"
    mover.join()
    return Moved(child.returncode, output, errors, moves)


class Mover:
    """Moves every program that has its runtime folder there, from place to place, for as long as this lasts."""

    def __init__(self, environment, places, moves, pause=(0.0, 0.1)):
        self._environment, self._places, self._moves, self._pause = environment, places, moves, pause
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _run(self):
        chance = random.Random(1)
        turn = 0
        while not self._ended.wait(chance.uniform(*self._pause)):
            for path in runtime_folder(self._environment).glob("session-*.sock"):
                session = Session(path.stem.removeprefix("session-"), self._environment)
                answer = session.ask(command="move", **self._places[turn % len(self._places)])
                if answer and not is_over(answer) and (not answer["ok"] or answer["plan"]["objects"]):
                    self._moves.append(answer)
                turn += 1
