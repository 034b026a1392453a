"""A `grus serve` on this host for as long as something runs."""

import contextlib
import os
import pathlib
import subprocess
import tempfile
import time


def wait_for(condition, seconds=5):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Server:
    """Of a kind: unix, tcp, or tls. What its clients need beside its address is in `client`, for their environment."""

    def __init__(self, grus, kind, vendors=None, environment=None, options=(), errors=None, before=(),
                 host="127.0.0.1"):
        self.grus, self.kind, self.vendors, self.options, self.errors = grus, kind, vendors, options, errors
        self.before, self.host = before, host  # what it is started with, and where it listens
        self.environment = {name: value for name, value in (os.environ if environment is None else environment).items()
                            if name != "GRUS_GPU"}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="grus-serve-")
        self.client = {}
        address = f"unix:{self.folder.name}/socket" if self.kind == "unix" else f"tcp:{self.host}:0"
        command = [*self.before, str(self.grus), "serve", "--listen", address, *self.options]
        if self.kind != "unix" and "--shared-cache" not in self.options:  # compiling takes longer than what is looked at
            command += ["--shared-cache", "yes"]
        if self.kind == "tls":
            keys = f"{self.folder.name}/keys"
            subprocess.run([str(self.grus), "keys", keys, "--host", "127.0.0.1"], stdout=subprocess.DEVNULL, check=True)
            command += ["--keys", keys]
            self.client = {"GRUS_KEYS": keys}
        if self.vendors:
            command += ["--vendors", str(self.vendors)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment,
                                        stderr=self.errors)
        self.address = self.process.stdout.readline().removeprefix("listening at ").strip()
        if not self.address:
            raise RuntimeError(f"{' '.join(command)}: it didn't start")
        wait_for(self.workers)
        return self

    def processes(self):
        """All that it has started, and what each is. None of them is still what was forked."""
        found = {}

        def look():
            found.clear()
            found.update(self.look_at_processes())
            return not any("serve" in words for words in found.values())

        wait_for(look)
        return found

    def look_at_processes(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = {}
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                found[int(pid)] = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return found

    def workers(self):
        """Its processes: those of clients, and one that is ready."""
        return [pid for pid, words in self.processes().items() if "worker" in words]

    def door(self):
        """The process that lets clients in over TLS."""
        return next(pid for pid, words in self.processes().items() if "door" in words)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.folder.cleanup()
