#!/usr/bin/python3
"""`ivshmem:`: programs of a guest at a server of its host, through memory that both share. Here a file stands for the memory
of the guest's PCI device, which is the same file at the host; `make check-vm` has the real one."""

import contextlib
import mmap
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
sys.dont_write_bytecode = True

from faults_test import GRUS, LOST, MMUL, Faults, memory_of  # noqa: E402
from relay_test import Guest  # noqa: E402
from serving import wait_for  # noqa: E402

MIB = 1 << 20
FALLS_BACK = "no shared memory"


class AreaGuest(Guest):
    """With an area of so many slices."""

    def __init__(self, test, server, slices=4, mib=64):
        file = test.enterContext(tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="grus-area-"))
        file.truncate(slices * mib * MIB)
        self.area = file.name
        super().__init__(test, server, area=self.area, slice=mib)
        self.address = f"ivshmem:{self.area}@{self.folder}/programs"

    def at(self, device):
        """The same guest for programs that take another device for its memory."""
        return types.SimpleNamespace(address=f"ivshmem:{device}@{self.folder}/programs", client={})

    def log(self, side):
        return pathlib.Path(f"{self.folder}/{side}.log").read_text(encoding="utf-8")


class AreaTest(Faults):
    def setUp(self):
        super().setUp()
        self.server = self.start()

    def guest(self, **how):
        return AreaGuest(self, self.server, **how)

    def expect_it_works(self, guest, *words, **how):
        """Through shared memory, that is."""
        status, said = self.run_program(guest, *words, **how).end()
        self.assertEqual(status, 0, said)
        self.assertNotIn(FALLS_BACK, said)

    def expect_it_falls_back(self, guest, *words):
        status, said = self.run_program(guest, *words).end()
        self.assertEqual(status, 0, said)
        self.assertIn(FALLS_BACK, said)


class IvshmemTest(AreaTest):
    def test_programs(self):
        guest = self.guest()
        self.expect_it_works(guest)
        self.expect_it_works(guest, "--both-ways")
        self.expect_it_works(guest, "--large-behind-small")
        self.expect_it_works(guest, "--quick", program=MMUL)
        # Gigabytes went through the memory, and only set-up and wake-ups through the port.
        self.assertLess(sum(guest.port.passed.values()), MIB)
        self.expect_nothing_left(self.server)

    def test_a_device_with_memory_of_its_own(self):
        server = self.start(environment=os.environ | {"GRUS_MEMORY": "own"})
        guest = AreaGuest(self, server)
        self.expect_it_works(guest)
        self.expect_it_works(guest, "--both-ways")
        self.assertLess(sum(guest.port.passed.values()), MIB)
        guest = AreaGuest(self, server, slices=1)
        self.expect_it_works(guest, "--map", 4 * 64 * MIB)
        self.assertLess(sum(guest.port.passed.values()), MIB)

    def test_more_mapped_than_the_area_holds(self):
        guest = self.guest(slices=1)
        self.expect_it_works(guest, "--map", 4 * 64 * MIB)

    def test_an_area_with_something_in_it(self):
        """As after a migration: QEMU brings what another host had there, while the relay is about it."""
        guest = self.guest(slices=1)
        with open(guest.area, "r+b", buffering=0) as area:
            area.write(random.Random(1).randbytes(64 * MIB))
            program = self.run_program(guest, "--for", 1).wait_until_ready()
            area.seek(-MIB, os.SEEK_END)
            self.assertEqual(area.read(), bytes(MIB))
        self.expect_right(program)

    def test_launches_wake_nobody(self):
        """What a launch takes doesn't leave the guest: a thousand of them cost as many frames as one program's set-up."""
        guest = self.guest()
        self.expect_it_works(guest)
        before = dict(guest.port.passed)
        self.expect_it_works(guest)
        frames = {name: (guest.port.passed[name] - before[name]) // 25 for name in before}  # of one byte
        self.assertLess(max(frames.values()), 100, frames)

    def test_who_waits_sleeps(self):
        """A client in clFinish behind a kernel of some seconds leaves its core to others."""
        status, said = self.run_program(self.guest(), "--wait", 2).end()
        self.assertEqual(status, 0, said)
        self.assertLess(float(said.split()[-1]), 0.05)

    def test_programs_take_turns_with_a_slice(self):
        guest = self.guest(slices=1)
        for _ in range(3):
            self.expect_it_works(guest)
            self.wait_until_free(guest)
        program = self.run_program(guest, "--for", 60).wait_until_ready()
        self.expect_it_falls_back(guest)
        self.assertIn("all of the area is in use", guest.log("host"))
        program.kill()
        self.wait_until_free(guest)
        self.expect_it_works(guest)
        self.wait_until_free(guest)

    def wait_until_free(self, guest):
        """All of it, and so the host has its memory back."""
        self.assertTrue(wait_for(lambda: os.stat(guest.area).st_blocks == 0), "a slice is still in use")

    def test_several_programs_and_guests_at_once(self):
        guests = [self.guest(slices=3) for _ in range(2)]
        programs = [self.run_program(guest, "--for", 1) for guest in guests for _ in range(3)]
        for program in programs:
            self.expect_right(program)
        for guest in guests:
            self.assertNotIn("no shared memory", guest.log("host"))
            self.wait_until_free(guest)
        self.expect_nothing_left(self.server)

    def test_relays_that_are_killed(self):
        guest = self.guest(slices=1)
        for side in ("guest", "host", "guest"):
            with self.subTest(side):
                program = self.run_program(guest, "--for", 60).wait_until_ready()
                guest.kill(guest.relays[side])
                guest.start(side)
                self.assertIn(LOST, self.expect_lost(program, 10))
                self.expect_nothing_left(self.server, 5)
                self.expect_it_works(guest)

    def test_a_program_that_left_and_has_memory_mapped(self):
        """Nobody else gets its slice before it has let go of it, not even from a relay that is new."""
        guest = self.guest(slices=1)
        program = self.run_program(guest, "--keep-mapped").wait_until_ready()
        subprocess.run([GRUS, "move", str(program.pid), "--to", self.server.address], check=True, capture_output=True)
        self.expect_it_falls_back(guest)
        guest.kill(guest.relays["host"])
        heard = guest.port.passed["host"]
        guest.start("host")
        self.assertTrue(wait_for(lambda: guest.port.passed["host"] > heard), "the guest's relay didn't answer the new one")
        self.expect_it_falls_back(guest, "--map", 64 * MIB)
        self.expect_right(program)
        self.wait_until_free(guest)
        self.expect_it_works(guest)

    def test_a_worker_that_is_killed(self):
        guest = self.guest(slices=2)
        ready = self.server.workers()
        program = self.run_program(guest, "--for", 60).wait_until_ready()
        with self.bystander(guest):
            os.kill(ready[0], 9)
            self.assertIn(LOST, self.expect_lost(program, 10))
            self.expect_it_works(guest)

    def test_what_is_wrong_is_said(self):
        guest = self.guest()

        def expect_said(device, text, **how):
            status, said = self.run_program(guest.at(device), **how).end()
            self.assertEqual(status, 1)
            self.assertRegex(said, text)

        with self.subTest("no such device"):
            expect_said("0000:99:00.0", "0000:99:00.0/resource2: No such file or directory; is that a shared-memory device")
        with self.subTest("no permission"):
            os.chmod(guest.area, 0o000)
            no_root = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
            expect_said(guest.area, r"Permission denied; root can let this user's group in: chgrp GROUP /\S+ && chmod 660 ",
                        before=no_root)
            os.chmod(guest.area, 0o600)
        with self.subTest("another device"), tempfile.NamedTemporaryFile() as other:
            other.truncate(4 * 64 * MIB)
            expect_said(other.name, "isn't the device of the host's area")
        with self.subTest("a device that is too small"), tempfile.NamedTemporaryFile() as other:
            other.truncate(32 * MIB)
            expect_said(other.name, "has 32 MiB, and the host's area is larger")
        with self.subTest("a relay without an area"):
            guest.options = []
            guest.kill(guest.relays["host"])
            heard = guest.port.passed["host"]
            guest.start("host")
            self.assertTrue(wait_for(lambda: guest.port.passed["host"] > heard))
            self.expect_it_falls_back(guest)
            self.assertIn("this relay has no --area", guest.log("host"))
        with self.subTest("no relay"):
            guest.kill(guest.relays["guest"])
            expect_said(guest.area, "is `grus relay` running there?")

    def test_areas_that_cant_be(self):
        guest = self.guest()

        def expect_said(text, *options, to=self.server.address, status=1):
            done = subprocess.run([GRUS, "relay", "--port", "unix:/nowhere", "--to", to, *options], text=True,
                                  stderr=subprocess.PIPE, check=False, timeout=20)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertRegex(done.stderr, text)

        expect_said("no such file; make it: truncate -s 256M /dev/shm/nowhere", "--area", "/dev/shm/nowhere")
        with tempfile.NamedTemporaryFile() as small:
            expect_said("a file of at least 16 MiB", "--area", small.name)
        expect_said("a file of at least 16 MiB", "--area", "/dev/null")
        expect_said("another relay uses it; each guest needs a file of its own", "--area", guest.area)
        expect_said("the server must be at a Unix socket", "--area", guest.area, to="tcp:127.0.0.1:1", status=2)
        done = subprocess.run([GRUS, "relay", "--port", "/nowhere", "--area", guest.area], capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)


class Enemy:
    """A guest's program that makes its session itself, and may write what it likes into its slice."""

    HELLO, NAME_DEVICE, CREATE_CONTEXT, CREATE_QUEUE, CREATE_BUFFER = 0, 2, 7, 8, 9
    WRITE = 0x102
    ID = 1 << 24 | 1
    RING = MIB
    PUT, GOT, CONSUMER_SLEEPS, PRODUCER_SLEEPS, ANSWERS = 0, 64, 128, 192, 256

    def __init__(self, guest):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(f"{guest.folder}/programs")
        self.socket.settimeout(20)
        self.socket.sendall(struct.pack("<IHHIIQ", 0x53555247, 1, 1, 6, 0, 0))
        welcome = self.socket.recv(72, socket.MSG_WAITALL)
        _, _, _, _, has_memory, *sizes, self.offset = struct.unpack("<IHHIIQQQQ", welcome[:48])
        if not has_memory:
            self.socket.close()
            raise AssertionError("it got no slice")
        self.size = sum(sizes)
        with open(guest.area, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), self.size, offset=self.offset)
        self.put = self.number = 0

    def word(self, at, value):
        self.memory[at:at + 8] = struct.pack("<Q", value % (1 << 64))

    def send(self, data):
        for byte in data:
            self.memory[512 + self.put % self.RING] = byte
            self.put += 1
        self.word(self.PUT, self.put)
        self.wake()

    def wake(self):
        with contextlib.suppress(OSError):
            self.socket.sendall(b"l")

    def message(self, kind, body=b""):
        self.number += 1
        return struct.pack("<IHHQQ", len(body), kind, 0, self.number, 0) + body

    def begin(self):
        self.send(self.message(self.HELLO, struct.pack("<Q", 0)) +
                  self.message(self.NAME_DEVICE, struct.pack("<IIQ", 0, 0, self.ID)) +
                  self.message(self.CREATE_CONTEXT, struct.pack("<QQQIQ", self.ID, 1, self.ID, 0, 0)) +
                  self.message(self.CREATE_QUEUE, struct.pack("<QQQQ", self.ID, self.ID, self.ID, 0)))

    def buffer(self, size, place):
        return self.message(self.CREATE_BUFFER, struct.pack("<QQQQQBQ", self.ID, self.ID, 0, 0, size, 0, place))

    def write(self, buffer, size, place):
        return self.message(self.WRITE, struct.pack("<QQBQQQQQ", self.ID, 0, 0, 0, buffer, 0, size, place))

    def has_ended(self):
        """The session, by what the host says."""
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(4096):
                pass
        return True

    def close(self):
        self.socket.close()
        self.memory.close()


class EnemyTest(AreaTest):
    """It loses its own session, and that is all."""

    def setUp(self):
        super().setUp()
        self.guest_of_enemy = self.guest(slices=16)  # a slice is free only when its worker has ended
        self.other = self.guest(slices=1)

    @contextlib.contextmanager
    def bystanders(self):
        """A program of the same guest and one of another, who compute and check all the while."""
        with self.bystander(self.guest_of_enemy), self.bystander(self.other):
            yield
        for guest in (self.guest_of_enemy, self.other):
            self.assertNotIn("no shared memory", guest.log("host"))
            self.assertIsNone(guest.relays["host"].poll())
        self.assertIsNone(self.server.process.poll())
        self.expect_nothing_left(self.server, 5)

    def expect_it_ends(self, do):
        enemy = Enemy(self.guest_of_enemy)
        try:
            do(enemy)
            self.assertTrue(enemy.has_ended())
        finally:
            enemy.close()

    def test_indices_that_cant_be(self):
        with self.bystanders():
            for value in (2 * MIB, 1 << 63, -1, (1 << 64) - 2 * MIB):
                for at in (Enemy.PUT, Enemy.ANSWERS + Enemy.GOT):
                    with self.subTest(value=value, at=at):
                        self.expect_it_ends(lambda enemy, at=at, value=value: (
                            enemy.begin() if at != Enemy.PUT else None, enemy.word(at, value), enemy.wake(),
                            enemy.send(enemy.message(enemy.HELLO)) if at != Enemy.PUT else None))

    def test_indices_that_go_back(self):
        def go_back(enemy):
            enemy.begin()
            enemy.word(enemy.PUT, 1)
            enemy.wake()

        with self.bystanders():
            self.expect_it_ends(go_back)

    def test_messages_that_make_no_sense(self):
        chance = random.Random(6)
        with self.bystanders():
            for _ in range(10):
                head = struct.pack("<IHHQQ", chance.randrange(200), chance.randrange(1 << 16), 0, 1, 0)
                self.expect_it_ends(lambda enemy, head=head: enemy.send(head + chance.randbytes(4096)))
            self.expect_it_ends(lambda enemy: enemy.send(struct.pack("<IHHQQ", 0xffffffff, 0, 0, 1, 0)))

    def test_memory_of_others(self):
        """The slice beside it, what is before it, and places that wrap around."""
        def ask_for(enemy, place):
            enemy.begin()
            enemy.send(enemy.buffer(4096, place))

        with self.bystanders():
            for place in (64 * MIB, 64 * MIB - 1, 1 << 63, (1 << 64) - 64 * MIB, (1 << 64) - 4096, 4096, 1):
                with self.subTest(place=place):
                    self.expect_it_ends(lambda enemy, place=place: ask_for(enemy, place))

    def test_objects_of_others(self):
        def ask_for(enemy, buffer):
            enemy.begin()
            enemy.send(enemy.write(buffer, 64, 32 * MIB))

        with self.bystanders():
            for buffer in (Enemy.ID, Enemy.ID + 1, 2 << 24 | 1, (1 << 64) - 1):
                with self.subTest(buffer=buffer):
                    self.expect_it_ends(lambda enemy, buffer=buffer: ask_for(enemy, buffer))

    def test_one_that_writes_everywhere_all_the_time(self):
        chance = random.Random(7)
        with self.bystanders():
            for _ in range(5):
                enemy = Enemy(self.guest_of_enemy)
                enemy.begin()
                end = time.monotonic() + 0.5
                while time.monotonic() < end:
                    at = chance.choice((0, 64, 128, 192, 256, 320, 384, 448, 8 * chance.randrange(enemy.size // 8)))
                    enemy.word(at, chance.choice((chance.randrange(1 << 64), chance.randrange(MIB), 1)))
                    enemy.wake()
                enemy.close()

    def test_one_that_forges_its_slice(self):
        """What the relay says counts: a guest has no descriptors to bring, and can't name a place."""
        with self.bystanders():
            sock = socket.socket(socket.AF_UNIX)
            with sock:
                sock.connect(f"{self.guest_of_enemy.folder}/programs")
                sock.sendall(struct.pack("<IHHIIQ", 0x53555247, 1, 1, 6, 0, 0) + struct.pack("<QQ", 0, 192 * MIB))
                welcome = sock.recv(72, socket.MSG_WAITALL)
                *_, offset = struct.unpack("<IHHIIQQQQ", welcome[:48])
                self.assertEqual(offset % (64 * MIB), 0)
                self.assertEqual(sum(struct.unpack("<QQQ", welcome[16:40])), 64 * MIB)

    def test_one_that_stays(self):
        """A session that nobody uses costs nothing: both sides sleep."""
        with self.bystanders():
            enemy = Enemy(self.guest_of_enemy)
            mapped = f" {enemy.offset:08x} "  # and nothing else of the area
            worker, = (pid for pid in self.server.workers() if mapped in self.area_of(pid))
            self.assertEqual(len(self.area_of(worker).splitlines()), 1)
            enemy.begin()
            time.sleep(0.5)
            before = cpu_seconds(worker)
            time.sleep(1)
            self.assertLess(cpu_seconds(worker) - before, 0.05)
            self.assertLess(memory_of(worker), 512 * MIB)
            enemy.close()


    def area_of(self, pid):
        """What it maps of the guest's area."""
        lines = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
        return "\n".join(line for line in lines if self.guest_of_enemy.area in line)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    unittest.main(verbosity=2)
