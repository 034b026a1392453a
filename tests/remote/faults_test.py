#!/usr/bin/python3
"""What can go wrong between programs and `grus serve`: processes that are killed, connections that are cut, clients that
misbehave, disks and memory that are full. Whatever it is, it ends in bounded time with an error or the right result, leaves
nothing at the server, and harms no other session: a second program computes all the while."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
sys.dont_write_bytecode = True

from link import Link  # noqa: E402
from serving import Server, wait_for  # noqa: E402

BUILD = pathlib.Path(os.environ["GRUS_BUILD"])
GRUS = BUILD / "bin" / "grus"
USUAL = BUILD / "bin" / "tests" / "remote_usual"
TENANT = BUILD / "bin" / "tests" / "remote_tenant"
MMUL = BUILD / "bin" / "workloads" / "mmul"
SECONDS = 60
SLOWER = 4 if os.environ["GRUS_SANITIZE"] else 1
KEPT = 512 << 20 if os.environ["GRUS_SANITIZE"] else 0  # of what was freed
KINDS = ("unix", "tcp", "tls")
NOTICED = 8  # seconds after which a system that says nothing counts as gone
LOST = "OpenCL calls fail from here on"


def is_running(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def memory_of(pid):
    """Bytes that a process has in memory."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


def cpu_seconds_of(pid):
    user, system = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Program(subprocess.Popen):
    """remote_usual, or another one, with its devices at a server."""

    def __init__(self, server, *words, before=(), program=USUAL):
        super().__init__([*before, GRUS, "run", "--gpu", server.address, "--", program, *map(str, words)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=os.environ | server.client)

    def wait_until_ready(self):
        if self.stdout.readline() != "ready\n":
            raise AssertionError(self.communicate()[1])
        return self

    def end(self, seconds=SECONDS):
        """Its exit status and all that it said."""
        try:
            output, errors = self.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self.communicate()
            raise
        return self.returncode, output + errors

    def __exit__(self, *details):
        self.kill()
        super().__exit__(*details)


class Deaf:
    """A client of its own making, which asks and asks and never takes an answer."""

    HELLO, NAME_DEVICE, CREATE_CONTEXT, CREATE_QUEUE, CREATE_BUFFER, WHEN_IDLE, READ = 0, 2, 7, 8, 9, 31, 0x101
    ID = 1 << 24 | 1

    def __init__(self, server):
        host, port = server.address.removeprefix("tcp:").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        self.number = 0
        self.socket.sendall(struct.pack("<IHHIIQ", 0x53555247, 1, 1, 0, 0, 0))
        self.take(72)
        self.ask(self.HELLO, struct.pack("<Q", 0))

    def take(self, size):
        data = b""
        while len(data) < size:
            data += self.socket.recv(size - len(data)) or sys.exit("the server closed the connection")
        return data

    def message(self, kind, body=b""):
        self.number += 1
        return struct.pack("<IHHQQ", len(body), kind, 0, self.number, 0) + body

    def ask(self, kind, body):
        self.socket.sendall(self.message(kind, body))
        size, _, _, _, bulk = struct.unpack("<IHHQQ", self.take(24))
        return self.take(size + bulk)

    def begin(self, size):
        """A context, a queue and a buffer."""
        self.socket.sendall(self.message(self.NAME_DEVICE, struct.pack("<IIQ", 0, 0, self.ID)))
        self.ask(self.CREATE_CONTEXT, struct.pack("<QQQIQ", self.ID, 1, self.ID, 0, 0))
        self.ask(self.CREATE_QUEUE, struct.pack("<QQQQ", self.ID, self.ID, self.ID, 0))
        self.ask(self.CREATE_BUFFER, struct.pack("<QQQQQBQ", self.ID, self.ID, 0, 0, size, 0, 0))

    def read(self, size):
        return self.message(self.READ, struct.pack("<QQBQQQQBQ", self.ID, 0, 0, 0, self.ID, 0, size, 0, 0))

    def send_until_it_is_full(self, make, most):
        """How much the server took before it took no more."""
        self.socket.settimeout(1)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < most:
                batch = b"".join(make() for _ in range(100))
                self.socket.sendall(batch)
                sent += len(batch)
        return sent


class Faults(unittest.TestCase):
    def start(self, kind="unix", *options, **how):
        return self.enterContext(Server(GRUS, kind, options=options, **how))

    def run_program(self, server, *words, **how):
        return self.enterContext(Program(server, *words, **how))

    def lay_cable(self):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        if not shutil.which("ip"):
            self.skipTest("there is no `ip` to make network namespaces with")
        try:
            return self.enterContext(Link())
        except subprocess.CalledProcessError as error:
            self.skipTest(f"this system makes no network namespaces: {(error.stderr or '').strip()}")

    def expect_right(self, program, seconds=SECONDS):
        status, said = program.end(seconds)
        self.assertEqual(status, 0, said)

    def expect_lost(self, program, seconds):
        status, said = program.end(seconds)
        self.assertEqual(status, 1, said)
        self.assertIn("OpenCL error", said)
        return said

    def expect_nothing_left(self, server, seconds=1.0 * SLOWER, sessions=0):
        self.assertTrue(wait_for(lambda: len(server.workers()) <= sessions + 1, seconds), "a worker is still there")

    @contextlib.contextmanager
    def bystander(self, server, **how):
        """A program that computes through whatever happens meanwhile."""
        program = self.run_program(server, "--until-told", **how).wait_until_ready()
        yield program
        self.expect_right(program)

    def kill_servers(self, times):
        chance = random.Random(times)
        for number in range(times):
            with self.subTest(number=number), Server(GRUS, KINDS[number % len(KINDS)]) as server:
                with Program(server, "--for", SECONDS) as program:
                    time.sleep(chance.uniform(0, 1.0))
                    workers = server.workers()
                    server.process.kill()
                    self.expect_lost(program, 10)
                self.assertTrue(wait_for(lambda: not any(map(is_running, workers)), SLOWER), "a worker is still there")

    def run_at_once(self, count, seconds):
        server = self.start()
        programs = [self.run_program(server, "--for", seconds) for _ in range(count)]
        for program in programs:
            self.expect_right(program, 20 * SECONDS)
        self.expect_nothing_left(server)

    def cut_for_good(self, grace):
        """One program loses its server; of another the whole host is gone, and the server must notice."""
        cable = self.lay_cable()
        server = self.start("tcp", "--grace", str(grace), before=cable.at_server, host=cable.SERVER)
        program = self.run_program(server, "--for", SECONDS, before=cable.at_client).wait_until_ready()
        vanishing = self.run_program(server, "--for", SECONDS, before=cable.at_client).wait_until_ready()
        with self.bystander(server, before=cable.at_server):
            cable.set("down")
            began = time.monotonic()
            vanishing.kill()
            said = self.expect_lost(program, NOTICED + grace + 4)
            self.assertIn(LOST, said)
            left = NOTICED + grace + 4 - (time.monotonic() - began)
            self.expect_nothing_left(server, left, sessions=1)
        self.expect_nothing_left(server)

    def cut_for(self, seconds):
        cable = self.lay_cable()
        server = self.start("tcp", before=cable.at_server, host=cable.SERVER)
        program = self.run_program(server, "--for", seconds + 3, before=cable.at_client).wait_until_ready()
        with self.bystander(server, before=cable.at_server):
            time.sleep(1)
            cable.set("down")
            time.sleep(seconds)
            cable.set("up")
            self.expect_right(program)
        self.expect_nothing_left(server)


class FaultsTest(Faults):
    def test_a_server_that_is_killed_at_any_moment(self):
        self.kill_servers(8)

    def test_a_worker_that_is_killed(self):
        for kind in KINDS:
            with self.subTest(kind):
                server = self.start(kind)
                before = set(server.workers())
                victim = self.run_program(server, "--for", SECONDS).wait_until_ready()
                with self.bystander(server):
                    os.kill(before.pop(), signal.SIGKILL)  # the one that was ready is the first client's
                    self.assertIn(LOST, self.expect_lost(victim, 5))
                self.expect_nothing_left(server)

    def test_a_client_that_is_killed(self):
        for kind in KINDS:
            with self.subTest(kind):
                server = self.start(kind)
                program = self.run_program(server, "--for", SECONDS).wait_until_ready()
                with self.bystander(server):
                    program.kill()
                    program.wait()
                    self.expect_nothing_left(server, 1, sessions=1)

    def test_a_client_that_is_killed_while_its_kernel_runs(self):
        for kind, words, options in (("unix", ["--endless"], []), ("tcp", ["--endless"], []), ("tls", ["--endless"], []),
                                     ("unix", ["--ms", 60000], ["--shares"]), ("tcp", ["--ms", 60000], ["--shares"])):
            with self.subTest(kind, words=words):
                server = self.start(kind, *options)
                worker, = server.workers()
                program = self.run_program(server, *words, program=TENANT).wait_until_ready()
                with self.bystander(server):
                    before = cpu_seconds_of(worker)
                    program.stdin.write("\n")
                    program.stdin.flush()
                    self.assertTrue(wait_for(lambda: cpu_seconds_of(worker) > before + 0.3, 20))
                    program.kill()
                    program.wait()
                    self.assertTrue(wait_for(lambda: not is_running(worker), 1.0 * SLOWER), "the worker is still there")
                self.expect_nothing_left(server)

    def test_a_connection_that_is_cut_for_three_seconds(self):
        self.cut_for(3)

    def test_a_connection_that_is_cut_for_good(self):
        self.cut_for_good(grace=1)

    def test_a_client_that_takes_no_answers(self):
        server = self.start("tcp")
        ready, = server.workers()
        deaf = Deaf(server)
        self.addCleanup(deaf.socket.close)
        with self.bystander(server):
            sent = deaf.send_until_it_is_full(lambda: deaf.message(deaf.WHEN_IDLE, b"\1"), 64 << 20)
            self.assertLess(sent, 64 << 20)
            self.assertLess(memory_of(ready), (256 << 20) + KEPT)
        deaf.socket.close()
        self.expect_nothing_left(server)

    def test_a_client_that_takes_no_data(self):
        server = self.start("tcp")
        ready, = server.workers()
        deaf = Deaf(server)
        self.addCleanup(deaf.socket.close)
        deaf.begin(16 << 20)
        with self.bystander(server):
            deaf.socket.sendall(b"".join(deaf.read(16 << 20) for _ in range(200)))  # 3 GiB, if all of it were kept
            self.assertFalse(wait_for(lambda: memory_of(ready) > (768 << 20) + KEPT, 2), "it keeps too much")
        deaf.socket.close()
        self.expect_nothing_left(server, 5)

    def test_a_disk_that_is_full(self):
        if os.geteuid() != 0:
            self.skipTest("a small disk can only be made by root")
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="grus-cache-"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", folder], capture_output=True, text=True,
                                 check=False)
        if mounted.returncode != 0:
            self.skipTest(f"a small disk can't be made: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)
        server = self.start(environment=os.environ | {"POCL_CACHE_DIR": folder})
        with self.bystander(server):
            with contextlib.suppress(OSError), open(f"{folder}/full", "wb") as file:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            # A driver may do without its cache, or not; it must say so.
            status, said = self.run_program(server, "--quick", program=MMUL).end()
            self.assertGreaterEqual(status, 0, said)
            if status != 0:
                self.assertIn("the kernels don't build", said)
        self.expect_nothing_left(server)

    @unittest.skipIf(os.environ["GRUS_SANITIZE"], "a sanitizer needs more address space than any limit leaves")
    def test_a_server_without_memory(self):
        server = self.start(before=("prlimit", f"--as={12 << 30}"))
        with self.bystander(server):
            said = self.expect_lost(self.run_program(server, "--allocate", 11 << 30), 20)
            self.assertRegex(said, "OpenCL error -(4|5|6|61)\n")  # allocation failure, out of resources or memory, size
            self.expect_right(self.run_program(server, "--allocate", 1 << 20))
        self.expect_nothing_left(server)

    @unittest.skipIf(os.environ["GRUS_SANITIZE"], "a sanitizer needs more address space than any limit leaves")
    def test_a_client_without_memory(self):
        server = self.start()
        with self.bystander(server):
            self.expect_lost(self.run_program(server, "--allocate", 4 << 30, before=("prlimit", f"--as={2 << 30}")), 20)
        self.expect_nothing_left(server)

    def test_sixteen_sessions_at_once(self):
        self.run_at_once(16, 2)


class LongFaultsTest(Faults):
    def test_a_server_that_is_killed_at_any_moment(self):
        self.kill_servers(50)

    def test_a_connection_that_is_cut_until_both_sides_gave_it_up(self):
        self.cut_for(NOTICED + 3)

    def test_a_connection_that_is_cut_for_good(self):
        self.cut_for_good(grace=10)

    def test_sixty_four_sessions_at_once(self):
        self.run_at_once(64, 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
