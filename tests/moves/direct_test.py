#!/usr/bin/python3
"""Programs that move from one server to another: their memory goes straight there, and not through their own process."""

import contextlib
import json
import pathlib
import queue
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
from subjects import ENVIRONMENT, GRUS, Server, Subject  # noqa: E402

MEMORY = 32 << 20  # that the program has

PREAMBLE, WELCOME = 24, 72  # bytes
PAGES = 3  # what a preamble can be for


class Between:
    """In front of a server. Keeps what workers of others say to it, and answers that itself."""

    def __init__(self, server):
        self.server = ("127.0.0.1", int(server.address.rsplit(":", 1)[1]))
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self.listening.getsockname()[1]}"
        self.brought = queue.Queue()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.listening.accept()[0],), daemon=True).start()

    def serve(self, client):
        first = client.recv(PREAMBLE, socket.MSG_WAITALL)
        if struct.unpack_from("<IHHI", first)[3] == PAGES:
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n".ljust(WELCOME))
            self.brought.put(first + b"".join(iter(lambda: client.recv(4096), b"")))
            client.close()
            return
        with client, socket.create_connection(self.server) as server:
            server.sendall(first)
            back = threading.Thread(target=self.move, args=(server, client), daemon=True)
            back.start()
            self.move(client, server)
            back.join()

    @staticmethod
    def move(start, end):
        with contextlib.suppress(OSError):
            while data := start.recv(65536):
                end.sendall(data)
            end.shutdown(socket.SHUT_WR)


class DirectTest(unittest.TestCase):
    environment = {}

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-direct-")))

    def server(self, kind="tcp", *options):
        audit = self.folder / f"audit-{len(list(self.folder.glob('audit-*')))}"
        audit.touch()
        server = self.enterContext(Server(GRUS, kind, None, ENVIRONMENT | self.environment, options=("--audit", str(audit), *options),
                                          errors=subprocess.DEVNULL))
        server.audit = audit
        return server

    def subject(self, server, kind="busy", **environment):
        return self.enterContext(Subject(kind, 8, 4, 1, options=["--gpu", server.address],
                                         environment=self.environment | environment))

    def move(self, subject, to, **how):
        answer = subject.ask("move", to=to.address, **how)
        self.assertTrue(answer["ok"], answer)
        return answer

    def expect_direct(self, moved):
        self.assertEqual(moved["plan"]["notes"], [])
        self.assertGreaterEqual(moved["sent_direct"], MEMORY)
        self.assertEqual(moved["sent_direct"], moved["sent_running"] + moved["sent_stopped"])

    def ended(self, server):
        """What the server counted for the session that was there."""
        server.process.terminate()
        server.process.wait(20)
        return [line for line in map(json.loads, server.audit.read_text().splitlines()) if line["event"] == "end"][0]

    def test_bytes_go_straight(self):
        first, second = self.server(), self.server()
        subject = self.subject(first)
        self.expect_direct(self.move(subject, second))
        subject.end()
        here, there = self.ended(first), self.ended(second)
        self.assertGreaterEqual(here["pages_out_bytes"], MEMORY)
        self.assertEqual(there["pages_in_bytes"], here["pages_out_bytes"])
        self.assertLess(here["bytes_out"], 4 << 20)
        self.assertLess(there["bytes_in"], 4 << 20)

    def test_results_stay_right(self):
        servers = [self.server(), self.server("unix"), self.server(), self.server("unix")]
        for kind in ("busy", "ways"):
            subject = self.subject(servers[0], kind)
            for server in servers[1:] + servers:
                moved = self.move(subject, server)
                self.assertEqual(moved["plan"]["notes"], [])
                self.assertGreater(moved["sent_direct"], 0)
            subject.end()

    def test_images(self):
        """Go as buffers do, and again only the pages that were written."""
        servers = [self.server(), self.server()]
        subject = self.subject(servers[0], "images")
        for server in (servers[1], servers[0]):
            moved = self.move(subject, server, bytes_per_second=64 << 20)
            self.assertEqual(moved["plan"]["notes"], [])
            other = moved["sent_running"] + moved["sent_stopped"] - moved["sent_direct"]
            self.assertLess(other, 64 << 10)  # some images are small
            self.assertGreater(moved["sent_direct"], 5 << 20)
            self.assertLess(moved["sent_stopped"], 1 << 20)
        subject.end()

    def test_with_tls(self):
        keys = self.folder / "keys"
        subprocess.run([GRUS, "keys", keys, "--host", "127.0.0.1"], stdout=subprocess.DEVNULL, check=True)
        first, second = self.server("tcp", "--keys", str(keys)), self.server("tcp", "--keys", str(keys))
        subject = self.subject(first, GRUS_KEYS=str(keys))
        for server in (second, first, second):
            self.expect_direct(self.move(subject, server))
        subject.end()

    def test_servers_that_cannot_reach_each_other(self):
        """Then memory goes through the program's process, and whoever asked is told."""
        first, second = self.server("tcp", "--no-direct"), self.server()
        subject = self.subject(first)
        moved = self.move(subject, second)
        self.assertRegex(moved["plan"]["notes"][0], "through the program's own process: .* can't be reached from there")
        self.assertEqual(moved["sent_direct"], 0)
        self.expect_direct(self.move(subject, first))  # which connects
        subject.end()

    def test_a_worker_gets_no_connection_to_others_than_servers(self):
        """As who answers there as no server does when pages are brought, but lets clients through to one."""
        first, second = self.server(), self.server()
        between = Between(second)
        self.addCleanup(between.listening.close)
        subject = self.subject(first)
        moved = self.move(subject, between)
        self.assertRegex(moved["plan"]["notes"][0], "through the program's own process: .* can't be reached from there")
        self.assertEqual(len(between.brought.get(timeout=20)), PREAMBLE)
        subject.end()

    def test_nobody_gets_in_without_a_ticket(self):
        """Whoever knows a session's number can't write to its memory."""
        def connect(purpose, session):
            host, port = server.address.removeprefix("tcp:").rsplit(":", 1)
            line = self.enterContext(socket.create_connection((host, int(port)), 20))
            line.sendall(struct.pack("<IHHIIQ", 0x53555247, 1, 1, purpose, 0, session))
            return line

        def take(line, size):
            data = line.recv(size, socket.MSG_WAITALL)
            self.assertEqual(len(data), size)
            return data

        def ask(number, kind, body=b""):
            client.sendall(struct.pack("<IHHQQ", len(body), kind, 0, number, 0) + body)
            return take(client, struct.unpack("<IHHQQ", take(client, 24))[0])

        def bring_pages(session, key):
            line = connect(PAGES, session)
            try:
                line.recv(WELCOME, socket.MSG_WAITALL)
                line.sendall(key)
                return line.recv(8, socket.MSG_WAITALL)
            except ConnectionError:  # it need not be read
                return b""

        server = self.server()
        client = connect(0, 0)
        take(client, WELCOME)
        ask(1, 0, struct.pack("<Q", 0))  # hello
        code, session, key = struct.unpack("<iQ32s", ask(2, 35))  # expect_pages, which makes a ticket
        self.assertEqual(code, 0)
        wrong, admitted = struct.pack("<Q", 0), struct.pack("<Q", 1)
        for other in (bytes(32), b"x" * 32, key[:-1] + bytes([key[-1] ^ 1])):
            self.assertEqual(bring_pages(session, other), wrong)
        self.assertNotEqual(bring_pages(session ^ 1, key), admitted)
        self.assertEqual(bring_pages(session, key), admitted)
        self.assertEqual(bring_pages(session, key), b"")  # it counts once

    def test_a_server_that_is_lost_meanwhile(self):
        """The program goes on where it was, if that is left."""
        first, second = self.server(), self.server()
        subject = self.subject(first)
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(subject.session.path))
            request = {"command": "move", "to": second.address, "bytes_per_second": 8 << 20}
            line.sendall(json.dumps(request).encode() + b"\n")
            answers = map(json.loads, line.makefile())
            while next(answers).get("done", 0) == 0:
                pass
            second.process.kill()
            self.assertFalse(next(answer for answer in answers if "ok" in answer)["ok"])
        subject.end()


class OwnMemoryTest(DirectTest):
    """The same where a device has memory of its own, and compares pages itself."""

    environment = {"GRUS_MEMORY": "own"}


if __name__ == "__main__":
    unittest.main(verbosity=2)
