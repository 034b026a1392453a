#!/usr/bin/python3
"""Tenants that come and go, and are killed, on a device that has a part of the memory they want: results are right, and
nothing is left at the server. For GRUS_CROWD seconds, 600 if nothing is said. GRUS_CROWD_JSON names a file for how it went."""

import collections
import datetime
import json
import os
import pathlib
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True

from serve_test import GRUS, PROGRAMS, SECONDS, Server, wait_for  # noqa: E402

TENANTS = 64
ENOUGH = 120  # seconds for one of them, with all the others there
MIB = 1 << 20


def rss(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) << 10


def descriptors(process):
    return len(list(pathlib.Path(f"/proc/{process}/fd").iterdir()))


def children(process):
    return pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()


class Tenant(threading.Thread):
    def __init__(self, number, server, until, environment):
        super().__init__()
        self.random = random.Random(number)
        self.server, self.until, self.environment = server, until, environment
        self.count = collections.Counter()
        self.wrong = []

    def run(self):
        while time.monotonic() < self.until and not self.wrong:
            self.one()
            time.sleep(self.random.random())

    def one(self):
        command = [GRUS, "run", "--gpu", self.server.address, "--", PROGRAMS / "remote_swapped", "--mib", "1",
                   "--buffers", str(self.random.randint(1, 12)), "--rounds", str(self.random.randint(1, 3))]
        if self.random.random() < 0.3:
            command.append("--dull")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=self.environment) as program:
            try:
                if self.random.random() < 0.4:
                    time.sleep(self.random.random() * 5)
                    program.send_signal(self.random.choice([signal.SIGKILL, signal.SIGTERM]))
                    program.communicate(timeout=ENOUGH)
                    self.count["killed" if program.returncode < 0 else "done"] += 1
                    return
                _, errors = program.communicate(timeout=ENOUGH)
                if program.returncode != 0:
                    self.wrong.append(f"exit status {program.returncode}: {errors}")
                self.count["done"] += 1
            except subprocess.TimeoutExpired:
                program.kill()
                self.wrong.append("it didn't end")


class CrowdTest(unittest.TestCase):
    def setUp(self):
        if os.environ["GRUS_SANITIZE"]:
            self.skipTest("a sanitized libgrus.so can't be loaded into other programs")

    def write(self, seconds, counts, states):
        """As bench/results.py reads it."""
        row = {"tenants": TENANTS, "seconds": seconds, **counts}
        for name, (before, after) in states.items():
            row |= {f"{name}_before": before, f"{name}_after": after}
        about = {"device": os.environ.get("GRUS_VENDORS", "PoCL").rsplit("/", 1)[-1], "date": datetime.date.today().isoformat(),
                 "host": f"{len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}", "command": "tests/remote/crowd_test.py"}
        pathlib.Path(os.environ["GRUS_CROWD_JSON"]).write_text(json.dumps({"about": about, "rows": [row]}, indent=1) + "\n", encoding="utf-8")

    def test_nothing_is_left_of_many_who_come_and_go(self):
        own = os.environ | {"GRUS_MEMORY": "own"}
        seconds = float(os.environ.get("GRUS_CROWD", 600))
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="grus-crowd-"))
        control = f"unix:{folder}/control"  # over plain TCP nobody is told about others
        options = ["--listen", control, "--shares", "--memory-shares", "--device-memory", "96MiB", "--swap", "1GiB",
                   "--sessions", "128"]
        with Server(GRUS, "tcp", None, own, options) as server:
            process = server.process.pid

            def crowd(length):
                until = time.monotonic() + length
                tenants = [Tenant(number, server, until, own) for number in range(TENANTS)]
                for tenant in tenants:
                    tenant.start()
                for tenant in tenants:
                    tenant.join()
                self.assertEqual([wrong for tenant in tenants for wrong in tenant.wrong], [])
                return sum((tenant.count for tenant in tenants), collections.Counter())

            def status():
                done = subprocess.run([GRUS, "top", control, "--json", "--interval", "0.05"], capture_output=True,
                                      text=True, timeout=SECONDS, check=True)
                return json.loads(done.stdout)

            def state():
                self.assertTrue(wait_for(lambda: len(children(process)) == 1, 15), "only the ready worker is left")
                now = status()
                device, = now["devices"]
                self.assertEqual((now["sessions"], now["swap_used_bytes"]), ([], 0))
                self.assertEqual(device["free_bytes"], device["memory_bytes"])
                return descriptors(process), rss(process)

            crowd(min(20, seconds / 4))
            files, memory = state()
            counts = crowd(seconds)
            files_after, memory_after = state()
            print(f"{dict(counts)}; descriptors {files} -> {files_after}, memory {memory / MIB:.1f} -> "
                  f"{memory_after / MIB:.1f} MiB", flush=True)
            if "GRUS_CROWD_JSON" in os.environ:
                self.write(seconds, counts, {"descriptors": (files, files_after), "server_MiB": (memory / MIB, memory_after / MIB)})
            self.assertEqual(files_after, files)
            self.assertLess(memory_after, memory + 4 * MIB)
            self.assertGreater(counts["done"], TENANTS)
            self.assertGreater(counts["killed"], TENANTS / 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
