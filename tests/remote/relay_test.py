#!/usr/bin/python3
"""`grus relay`: programs of a guest at a server of its host, over a port that is one stream of bytes. A thread that copies
stands in for QEMU, which offers a socket at either end here."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
sys.dont_write_bytecode = True

from faults_test import GRUS, KEPT, LOST, MMUL, Faults, memory_of  # noqa: E402
from serving import wait_for  # noqa: E402


class Port:
    """What is sent at one end comes out at the other; whoever was there before is forgotten when somebody comes."""

    def __init__(self, folder):
        self.ends = {}
        self.passed = {"guest": 0, "host": 0}  # bytes, to each end
        self.arrived = threading.Condition()
        for name in ("guest", "host"):
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(f"{folder}/{name}")
            listening.listen(8)
            threading.Thread(target=self.serve, args=(name, listening), daemon=True).start()

    def serve(self, name, listening):
        while True:
            end, _ = listening.accept()
            with self.arrived:
                self.ends[name] = end
                self.arrived.notify_all()
            with end, contextlib.suppress(OSError):
                while data := end.recv(1 << 16):
                    self.put("host" if name == "guest" else "guest", data)

    def put(self, name, data):
        self.passed[name] += len(data)
        while True:
            with self.arrived:
                self.arrived.wait_for(lambda: name in self.ends)
                end = self.ends[name]
            try:
                return end.sendall(data)
            except OSError:  # it has ended; the next one gets it
                with self.arrived:
                    self.arrived.wait_for(lambda: self.ends[name] is not end)


class Guest:
    """A port with its two relays; for programs, what a server is."""

    def __init__(self, test, server, **options):
        """Options are the host's relay's."""
        self.test, self.server, self.client = test, server, {}
        self.options = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.folder = test.enterContext(tempfile.TemporaryDirectory(prefix="grus-relay-"))
        self.port = Port(self.folder)
        self.address = f"virtio-serial:{self.folder}/programs"
        self.relays = {}
        for side in ("host", "guest"):
            self.start(side)

    def start(self, side):
        where = ["--to", self.server.address, *self.options] if side == "host" else ["--listen", f"{self.folder}/programs"]
        if side == "guest":
            pathlib.Path(f"{self.folder}/programs").unlink(missing_ok=True)
        with open(f"{self.folder}/{side}.log", "a", encoding="utf-8") as log:
            self.relays[side] = subprocess.Popen([GRUS, "relay", "--port", f"unix:{self.folder}/{side}", *where], stderr=log)
        self.test.addCleanup(self.kill, self.relays[side])
        if side == "guest":
            self.test.assertTrue(wait_for(pathlib.Path(f"{self.folder}/programs").exists))

    def kill(self, relay):
        relay.kill()
        relay.wait()


class RelayTest(Faults):
    def setUp(self):
        super().setUp()
        self.server = self.start()
        self.guest = Guest(self, self.server)

    def expect_it_works(self):
        self.expect_right(self.run_program(self.guest))

    def test_programs(self):
        self.expect_it_works()
        self.expect_right(self.run_program(self.guest, "--both-ways"))
        self.expect_right(self.run_program(self.guest, "--quick", program=MMUL))
        self.expect_nothing_left(self.server)

    def test_several_programs_at_once(self):
        programs = [self.run_program(self.guest, "--for", 1) for _ in range(4)]
        for program in programs:
            self.expect_right(program)
        self.expect_nothing_left(self.server)

    def test_a_program_that_is_moved_there(self):
        program = self.run_program(self.server, "--until-told").wait_until_ready()
        subprocess.run([GRUS, "move", str(program.pid), "--to", self.guest.address], check=True, capture_output=True)
        self.assertGreater(self.guest.port.passed["guest"], 0)
        self.expect_right(program)

    def test_a_program_that_is_killed(self):
        program = self.run_program(self.guest, "--for", 60).wait_until_ready()
        with self.bystander(self.guest):
            program.kill()
            self.expect_nothing_left(self.server, 5, sessions=1)
        self.expect_nothing_left(self.server)

    def test_a_program_that_takes_nothing(self):
        program = self.run_program(self.guest, "--for", 60).wait_until_ready()
        with self.bystander(self.guest):
            os.kill(program.pid, signal.SIGSTOP)
            time.sleep(1)
            self.expect_it_works()
            for relay in self.guest.relays.values():
                self.assertLess(memory_of(relay.pid), (64 << 20) + KEPT)
            program.kill()
        self.expect_nothing_left(self.server, 5)

    def test_relays_that_are_killed(self):
        for side in ("guest", "host", "guest"):
            with self.subTest(side):
                program = self.run_program(self.guest, "--for", 60).wait_until_ready()
                self.guest.kill(self.guest.relays[side])
                self.guest.start(side)
                self.assertIn(LOST, self.expect_lost(program, 10))
                self.expect_nothing_left(self.server, 5)
                self.expect_it_works()

    def test_a_guest_that_says_anything(self):
        """It can only harm itself: a relay of its own that begins anew is understood."""
        chance = random.Random(1)
        begins = (0x9d7f3ac15e62b804).to_bytes(8, "little")
        for _ in range(2000):
            kind, connection, size = chance.randrange(8), chance.randrange(3), chance.choice((0, 100, 1 << 16, 1 << 40))
            frame = begins + struct.pack("<IIQ", kind, connection, size)
            self.guest.port.put("host", frame[:chance.choice((24, 24, 24, 9))] + chance.randbytes(chance.randrange(200)))
        self.assertIsNone(self.guest.relays["host"].poll())
        self.assertLess(memory_of(self.guest.relays["host"].pid), (64 << 20) + KEPT)
        self.guest.kill(self.guest.relays["guest"])
        self.guest.start("guest")
        self.expect_it_works()
        self.assertEqual(self.guest.relays["host"].poll(), None)

    def test_without_a_relay_it_is_said(self):
        self.guest.kill(self.guest.relays["guest"])
        status, said = self.run_program(self.guest).end()
        self.assertEqual(status, 1)
        self.assertIn("is `grus relay` running there?", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
