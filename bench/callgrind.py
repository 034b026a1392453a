"""Reads callgrind's files (written with --compress-strings=no --compress-pos=no)."""

import pathlib


class Profile:
    """One thread's instructions: each object's own, and those of each call from one object into another."""

    def __init__(self, path):
        self.thread = 0
        self.trigger = ""
        self.total = 0
        self.own = {}    # object: instructions
        self.calls = {}  # (caller's object, callee's object): instructions, all that the callee calls included
        self._read(path)

    def _read(self, path):
        current = callee = "???"
        inclusive = False  # the next cost line is a call's
        for line in pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            key, equals, value = line.partition("=")
            if line[:1].isdigit():
                cost = int(line.split()[1])
                if inclusive:
                    self.calls[current, callee] = self.calls.get((current, callee), 0) + cost
                    inclusive, callee = False, current
                else:
                    self.own[current] = self.own.get(current, 0) + cost
            elif key == "ob" and equals:
                current = callee = pathlib.PurePath(value).name
            elif key == "cob" and equals:
                callee = pathlib.PurePath(value).name
            elif key == "calls" and equals:
                inclusive = True
            elif line.startswith("thread: "):
                self.thread = int(line.split()[1])
            elif line.startswith("desc: Trigger: "):
                self.trigger = line.removeprefix("desc: Trigger: ")
            elif line.startswith("summary: "):
                self.total = int(line.split()[1])

    def own_of(self, prefix):
        return sum(cost for name, cost in self.own.items() if name.startswith(prefix))

    def called_by(self, prefix, except_prefixes):
        """Instructions of calls from `prefix`'s objects into others, apart from those named (and itself)."""
        outside = (prefix, *except_prefixes)
        return sum(cost for (caller, callee), cost in self.calls.items()
                   if caller.startswith(prefix) and not callee.startswith(outside))


def profiles(folder):
    return [Profile(path) for path in sorted(pathlib.Path(folder).iterdir()) if path.stat().st_size]
