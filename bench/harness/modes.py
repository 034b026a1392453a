"""The ways in which a workload can run. Each is a prefix of the command and an environment."""

import contextlib
import os
from dataclasses import dataclass

import common
from serving import Server

NATIVE = "native"
AGAIN = "native again"  # what two equal things differ by
SERVED = ("unix", "tcp")  # through a server on this host
# Modes of the plan that this version can't do yet: asking for one says so.
NOT_YET = {"vm": "guests are measured by bench/in_guest.py"}
KNOWN = (NATIVE, "grus", *SERVED, *NOT_YET)


@dataclass
class Mode:
    name: str
    prefix: list
    environment: dict


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
                server = servers.enter_context(Server(command, name, folder))
                modes.append(Mode(name, [str(command), "run", "--gpu", server.address, "--"], dict(os.environ)))
        modes.append(Mode(AGAIN, [], native.environment))
        yield modes, missing
