"""The ways in which a workload can run. Each is a prefix of the command and an environment."""

import os
from dataclasses import dataclass

import common

NATIVE = "native"
AGAIN = "native again"  # what two equal things differ by
# Modes of the plan that this version can't do yet: asking for one says so.
NOT_YET = {
    "unix": "there is no `grus serve` yet",
    "tcp": "there is no `grus serve` yet",
    "vm": "there is no `grus vm` yet",
    "moved": "there is no `grus move` yet",
}
KNOWN = (NATIVE, "grus", *NOT_YET)


@dataclass
class Mode:
    name: str
    prefix: list
    environment: dict


def chosen_modes(names, folder, grus):
    """(modes, missing): those that can run, native first and last, and why others can't."""
    missing = {name: NOT_YET[name] for name in names if name in NOT_YET}
    native = Mode(NATIVE, [], common.native_environment(folder))
    modes = [native]
    if "grus" in names:
        modes.append(Mode("grus", common.grus_command(common.program("grus", grus), folder), dict(os.environ)))
    modes.append(Mode(AGAIN, [], native.environment))
    return modes, missing
