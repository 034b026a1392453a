"""The ways in which a workload can run. Each is a prefix of the command and an environment."""

import contextlib
import os
import subprocess
import tempfile
from dataclasses import dataclass

import common

NATIVE = "native"
AGAIN = "native again"  # what two equal things differ by
SERVED = ("unix", "tcp")  # through a server on this host
# Modes of the plan that this version can't do yet: asking for one says so.
NOT_YET = {
    "vm": "there is no `grus vm` yet",
    "moved": "there is no `grus move` yet",
}
KNOWN = (NATIVE, "grus", *SERVED, *NOT_YET)


@dataclass
class Mode:
    name: str
    prefix: list
    environment: dict


@contextlib.contextmanager
def server(grus, kind, folder):
    """The address of a `grus serve` that offers those drivers."""
    with tempfile.TemporaryDirectory(prefix="serve-") as scratch:
        address = f"unix:{scratch}/socket" if kind == "unix" else "tcp:127.0.0.1:0"
        process = subprocess.Popen([grus, "serve", "--listen", address, "--vendors", folder], stdout=subprocess.PIPE, text=True)
        try:
            line = process.stdout.readline()
            if not line:
                raise common.Problem(f"grus serve --listen {address} didn't start")
            yield line.removeprefix("listening at ").strip()
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


@contextlib.contextmanager
def chosen_modes(names, folder, grus):
    """(modes, missing): those that can run, native first and last, and why others can't."""
    missing = {name: NOT_YET[name] for name in names if name in NOT_YET}
    native = Mode(NATIVE, [], common.native_environment(folder))
    modes = [native]
    with contextlib.ExitStack() as servers:
        for name in names:
            if name == "grus":
                modes.append(Mode(name, common.grus_command(common.program("grus", grus), folder), dict(os.environ)))
            elif name in SERVED:
                command = common.program("grus", grus)
                address = servers.enter_context(server(command, name, folder))
                modes.append(Mode(name, [str(command), "run", "--gpu", address, "--"], dict(os.environ)))
        modes.append(Mode(AGAIN, [], native.environment))
        yield modes, missing
