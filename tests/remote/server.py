"""A `grus serve` for a test."""

import os
import pathlib
import signal
import subprocess
import tempfile

GRUS = pathlib.Path(os.environ["GRUS_BUILD"]) / "bin" / "grus"


class Server:
    def __init__(self, kind="unix"):
        self.kind = kind

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="grus-serve-")
        address = f"unix:{self.folder.name}/socket" if self.kind == "unix" else "tcp:127.0.0.1:0"
        environment = {name: value for name, value in os.environ.items() if name != "GRUS_GPU"}
        self.process = subprocess.Popen([GRUS, "serve", "--listen", address], stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.address = self.process.stdout.readline().removeprefix("listening at ").strip()
        if not self.address:
            raise RuntimeError("grus serve didn't start")
        return self

    def workers(self):
        """Its processes: those of clients, and one that is ready."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)
        self.process.stdout.close()
        self.folder.cleanup()
