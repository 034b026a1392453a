#!/usr/bin/python3
"""`grus serve` and programs that use it: results, round trips, output, and what happens when one side is killed."""

import contextlib
import json
import os
import pathlib
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

from serving import Server, wait_for  # noqa: E402

BUILD = pathlib.Path(os.environ["GRUS_BUILD"])
GRUS = BUILD / "bin" / "grus"
WORKLOADS = BUILD / "bin" / "workloads"
PROGRAMS = BUILD / "bin" / "tests"
SECONDS = 60


def through(server, *command, **options):
    return subprocess.run([GRUS, "run", "--gpu", server.address, "--", *command], capture_output=True, text=True,
                          timeout=SECONDS, check=False, **options)


class OtherVersion:
    """Between a client and a server: makes each believe that the other speaks these protocols."""

    PREAMBLE, WELCOME = 24, 72

    def __init__(self, server, oldest, newest):
        self.server = ("127.0.0.1", int(server.address.rsplit(":", 1)[1]))
        self.protocols = struct.pack("<HH", newest, oldest)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self.listening.getsockname()[1]}"
        self.welcomes = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                server = socket.create_connection(self.server)
                for size, ends in ((self.PREAMBLE, (client, server)), (self.WELCOME, (server, client))):
                    threading.Thread(target=self.move, args=(size, *ends), daemon=True).start()

    def move(self, size, start, end):
        with contextlib.suppress(OSError):
            first = start.recv(size, socket.MSG_WAITALL)
            if size == self.WELCOME:
                self.welcomes.append(struct.unpack_from("<IHHI", first)[1:])
            end.sendall(first[:4] + self.protocols + first[8:])
            while data := start.recv(65536):
                end.sendall(data)
            end.shutdown(socket.SHUT_WR)


class ProtocolsTest(unittest.TestCase):
    def setUp(self):
        self.log = self.enterContext(tempfile.NamedTemporaryFile("r"))
        errors = self.enterContext(open(self.log.name, "w", encoding="utf-8"))
        self.server = self.enterContext(Server(GRUS, "tcp", errors=errors))
        first = OtherVersion(self.server, 0, 0xFFFF)
        self.run_through(first)
        self.newest, self.oldest, _ = first.welcomes[0]

    def run_through(self, version):
        self.addCleanup(version.listening.close)
        return through(version, PROGRAMS / "remote_usual")

    def test_neighbours_work_together(self):
        neighbours = [(self.newest, self.newest + 1), (self.oldest, self.newest)]
        if self.oldest < self.newest:
            neighbours.append((self.oldest, self.newest - 1))
        for oldest, newest in neighbours:
            version = OtherVersion(self.server, oldest, newest)
            done = self.run_through(version)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(version.welcomes[0][2], min(newest, self.newest))

    def test_who_differs_too_much_is_told_what_to_update(self):
        for protocols, client_says, server_says in (((self.newest + 1, self.newest + 2), "client", "server"),
                                                    ((0, self.oldest - 1), "server", "client")):
            workers = self.server.workers()
            done = self.run_through(OtherVersion(self.server, *protocols))
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr, rf"the server speaks protocols .*: update the {client_says}")
            self.assertEqual(self.server.workers(), workers)
            self.assertRegex(self.log.read(), rf"was refused: the client speaks protocols .*: update the {server_says}")


class ServeTest(unittest.TestCase):
    def start(self, kind="unix"):
        return self.enterContext(Server(GRUS, kind))

    def expect_well(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_results_are_native_ones(self):
        environment = os.environ | {"OCL_ICD_VENDORS": os.environ["GRUS_VENDORS"]}
        for name in ("mmul", "awkward", "encoder", "fft"):
            native = subprocess.run([WORKLOADS / name, "--quick"], capture_output=True, text=True, env=environment,
                                    check=False)
            self.expect_well(native)
            for kind in ("unix", "tcp"):
                with self.subTest(name, kind=kind):
                    done = through(self.start(kind), WORKLOADS / name, "--quick")
                    self.expect_well(done)
                    self.assertEqual(done.stdout.splitlines()[-1], native.stdout.splitlines()[-1])

    def test_a_usual_program_needs_few_round_trips(self):
        for kind in ("unix", "tcp"):
            with self.subTest(kind), tempfile.NamedTemporaryFile("r") as report:
                self.expect_well(through(self.start(kind), PROGRAMS / "remote_usual",
                                         env=os.environ | {"GRUS_REPORT": report.name}))
                trips = json.loads(report.read())["round_trips"]
                # One of them is the greeting.
                self.assertLessEqual(trips - 1, 4)

    def test_what_kernels_print_is_the_programs_output(self):
        for kind in ("unix", "tcp"):
            done = through(self.start(kind), PROGRAMS / "remote_usual", "--print")
            self.expect_well(done)
            self.assertIn("item 3 says hello", done.stdout)

    def test_data_goes_both_ways_at_once(self):
        for kind in ("unix", "tcp"):
            self.expect_well(through(self.start(kind), PROGRAMS / "remote_usual", "--both-ways"))

    def test_a_large_write_behind_a_small_one(self):
        for kind in ("unix", "tcp"):
            self.expect_well(through(self.start(kind), PROGRAMS / "remote_usual", "--large-behind-small"))

    def test_a_client_that_dies_frees_its_worker(self):
        server = self.start()
        client = subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", PROGRAMS / "remote_usual", "--for-ever"])
        self.assertTrue(wait_for(lambda: len(server.workers()) == 2, 10))
        time.sleep(0.5)
        client.kill()
        client.wait()
        self.assertTrue(wait_for(lambda: len(server.workers()) == 1, 1), "the worker is still there")

    def test_a_server_that_dies_is_an_error_not_a_hang(self):
        server = self.start()
        client = subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", PROGRAMS / "remote_usual", "--for-ever"],
                                  stderr=subprocess.PIPE, text=True)
        self.assertTrue(wait_for(lambda: len(server.workers()) == 2, 10))
        time.sleep(0.5)
        server.process.kill()
        _, errors = client.communicate(timeout=10)
        self.assertEqual(client.returncode, 1, errors)
        self.assertIn("OpenCL calls fail from here on", errors)

    def test_a_worker_that_dies_harms_nobody_else(self):
        server = self.start()
        clients = []
        for number in range(2):
            clients.append(subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", PROGRAMS / "remote_usual",
                                             "--for-ever"], stderr=subprocess.PIPE, text=True))
            self.assertTrue(wait_for(lambda: len(server.workers()) == number + 2, 10))
            time.sleep(0.5)
        first, *_ = sorted(server.workers())
        os.kill(first, 9)
        _, errors = clients[0].communicate(timeout=10)
        self.assertEqual(clients[0].returncode, 1, errors)
        self.assertIsNone(clients[1].poll())
        self.expect_well(through(server, PROGRAMS / "remote_usual"))
        clients[1].kill()
        clients[1].communicate()

    def test_noise_ends_nothing_but_its_own_session(self):
        server = self.start()
        for noise in (b"\xff" * 100, b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(24), os.urandom(4096)):
            client = socket.socket(socket.AF_UNIX)
            client.connect(server.address.removeprefix("unix:"))
            client.sendall(noise)
            client.shutdown(socket.SHUT_WR)
            client.settimeout(10)
            with contextlib.suppress(ConnectionResetError):  # it need not be read to its end
                while client.recv(4096):
                    pass
            client.close()
        self.expect_well(through(server, PROGRAMS / "remote_usual"))

    def test_a_server_that_is_not_there_is_named(self):
        done = subprocess.run([GRUS, "run", "--gpu", "unix:/nowhere/socket", "--", PROGRAMS / "remote_usual"],
                              capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("unix:/nowhere/socket: No such file or directory; is `grus serve` running there?", done.stderr)

    def test_the_ways_to_name_a_server(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-runtime-")))
        (folder / "grus").mkdir(mode=0o700)
        users = os.environ | {"XDG_RUNTIME_DIR": str(folder)}
        audit, own = folder / "audit", f"unix:{folder}/grus/serve.sock"

        def grus(*words, env=users):
            return subprocess.run([GRUS, *words], capture_output=True, text=True, timeout=SECONDS, check=False, env=env)

        automatic = ("run", "--gpu", "auto", "--", PROGRAMS / "remote_usual")
        self.expect_well(grus(*automatic))  # by the drivers here: no server runs
        with Server(GRUS, "tcp", options=["--listen", own, "--audit", str(audit)]) as server:
            self.expect_well(grus(*automatic))
            self.assertEqual(audit.read_text().count('"event":"connect"'), 1)
            self.expect_well(subprocess.run([PROGRAMS / "remote_usual"], capture_output=True, text=True, timeout=SECONDS,
                                            check=False, env=users | {"GRUS_GPU": server.address}))
            self.assertEqual(audit.read_text().count('"event":"connect"'), 2)
            for number, done in enumerate((grus("info", "--json", "--gpu", server.address),
                                           grus("info", "--json", env=users | {"GRUS_GPU": f"{own},{server.address}"}))):
                self.expect_well(done)
                platforms = json.loads(done.stdout)["platforms"]
                self.assertEqual([len(one["devices"]) > 0 for one in platforms], [True] * (number + 1))
            self.assertEqual(audit.read_text().count('"event":"connect"'), 5)
        done = grus("info", "--gpu", own)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no OpenCL device at {own}", done.stderr)

    @unittest.skipIf(os.environ["GRUS_SANITIZE"], "a sanitized libgrus.so can't be loaded into clinfo")
    def test_several_servers_are_several_platforms_or_one(self):
        addresses = [f"--gpu={self.start(kind).address}" for kind in ("unix", "tcp")]
        for options, platforms in ((addresses, 2), ([*addresses, "--one-platform"], 1)):
            done = subprocess.run([GRUS, "run", *options, "--", "clinfo", "--raw", "-l"], capture_output=True, text=True,
                                  timeout=SECONDS, check=False)
            self.expect_well(done)
            numbers = [line.split(":")[0] for line in done.stdout.splitlines() if line.strip()]
            self.assertEqual(sum("." not in number for number in numbers), platforms, done.stdout)
            self.assertEqual(sum("." in number for number in numbers), 2, done.stdout)
        self.expect_well(subprocess.run([GRUS, "run", *addresses, "--one-platform", "--", PROGRAMS / "remote_usual"],
                                        capture_output=True, text=True, timeout=SECONDS, check=False))

    def test_two_servers_cant_have_one_address(self):
        server = self.start()
        done = subprocess.run([GRUS, "serve", "--listen", server.address], capture_output=True, text=True,
                              timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("another server listens there", done.stderr)


if __name__ == "__main__":
    unittest.main()
