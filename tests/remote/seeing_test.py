#!/usr/bin/python3
"""What operators see of a server: `grus top`, and what Prometheus is told."""

import http.client
import json
import os
import pathlib
import pwd
import re
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

from serve_test import GRUS, PROGRAMS, SECONDS, Server, through, wait_for  # noqa: E402

SWAPPED = PROGRAMS / "remote_swapped"
USUAL = PROGRAMS / "remote_usual"
MIB = 1 << 20


class SeeingTest(unittest.TestCase):
    def setUp(self):
        if os.environ["GRUS_SANITIZE"]:
            self.skipTest("a sanitized libgrus.so can't be loaded into other programs")
        self.own = os.environ | {"GRUS_MEMORY": "own"}
        self.user = pwd.getpwuid(os.getuid()).pw_name

    def serve(self, *options):
        return self.enterContext(Server(GRUS, "unix", None, self.own, ["--device-memory", "64MiB", *options]))

    def start(self, server, *options):
        program = subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", SWAPPED, "--wait", *map(str, options)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.own)
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")
        return program

    def top(self, server, *options):
        return subprocess.run([GRUS, "top", server.address, "--interval", "0.1", *options], capture_output=True, text=True,
                              timeout=SECONDS, check=False)


class TopTest(SeeingTest):
    def test_tenants_and_their_memory(self):
        server = self.serve("--shares", "--memory", "1GiB")
        self.start(server, "--buffers", 18)
        status = json.loads(self.top(server, "--json").stdout)
        tenant, = status["tenants"]
        self.assertEqual((tenant["tenant"], tenant["sessions"], tenant["memory_bytes"]), (self.user, 1, 72 * MIB))
        self.assertLessEqual(tenant["on_device_bytes"], 64 * MIB)
        self.assertEqual(tenant["on_device_bytes"] + tenant["swapped_out_bytes"], 72 * MIB)
        self.assertEqual(status["swap_used_bytes"], tenant["swapped_out_bytes"])
        self.assertLessEqual(0, tenant["device_percent"])
        device, = status["devices"]
        self.assertEqual(device["memory_bytes"], 64 * MIB)
        shown = self.top(server, "--once")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertRegex(shown.stdout, rf"(?m)^{self.user} +1 +1 +[\d.]+ % +[\d.]+ % .* 72.0 MiB +1.0 GiB ")

    def test_time_is_unknown_where_it_is_not_shared(self):
        server = self.serve()
        self.start(server, "--buffers", 2)
        tenant, = json.loads(self.top(server, "--json").stdout)["tenants"]
        self.assertNotIn("device_percent", tenant)
        self.assertRegex(self.top(server).stdout, rf"(?m)^{self.user} +1 +1 +- +- ")

    def test_moves_that_are_under_way(self):
        first = self.serve()
        program = self.start(first, "--buffers", 12)
        with Server(GRUS, "unix", None, self.own) as other:
            with subprocess.Popen([GRUS, "move", str(program.pid), "--to", other.address, "--bandwidth", "8MB"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as move:
                for server, way in ((first, "leaves"), (other, "arrives")):
                    self.assertTrue(wait_for(lambda: re.search(rf"(?m)^[0-9a-f]{{16}} .* {way} .* MiB +48.0 MiB$",
                                                               self.top(server).stdout), 10), self.top(server).stdout)
                move.kill()
            self.assertTrue(wait_for(lambda: "leaves" not in self.top(first).stdout, 10), "given up")

    def test_a_server_that_is_not_there(self):
        done = subprocess.run([GRUS, "top", "unix:/nowhere/socket"], capture_output=True, text=True, timeout=SECONDS,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("unix:/nowhere/socket", done.stderr)


class MetricsTest(SeeingTest):
    def serve(self, *options):
        server = super().serve("--metrics", "0", *options)
        self.port = int(re.fullmatch(r"metrics at tcp:127\.0\.0\.1:(\d+)\n", server.process.stdout.readline())[1])
        return server

    def get(self, path="/metrics", method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    def metrics(self):
        """By name and labels, as Prometheus reads them."""
        answer, body = self.get()
        self.assertEqual(answer.status, 200)
        self.assertIn("version=0.0.4", answer.getheader("Content-Type"))
        found, types = {}, {}
        for line in body.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                self.assertNotIn(name, types)
                types[name] = kind
            elif not line.startswith("#"):
                name, value = re.fullmatch(r"([a-z_]+(?:\{[a-z]+=\"(?:[^\"\\]|\\.)*\"\})?) ([-+.e\d]+)", line).groups()
                self.assertIn(name.split("{")[0], types)
                found[name] = float(value)
        for name, kind in types.items():
            self.assertEqual(kind == "counter", name.endswith("_total"), name)
        return found

    def test_what_prometheus_is_told(self):
        server = self.serve("--shares")
        program = self.start(server, "--buffers", 18)
        of_user = f'{{tenant="{self.user}"}}'
        found = self.metrics()
        self.assertEqual(found["grus_sessions"], 1)
        self.assertEqual(found["grus_tenant_memory_bytes" + of_user], 72 * MIB)
        self.assertGreater(found["grus_tenant_swapped_out_bytes" + of_user], 0)
        self.assertGreater(found["grus_tenant_device_seconds_total" + of_user], 0)
        self.assertEqual(found['grus_device_memory_bytes{device="0"}'], 64 * MIB)
        program.communicate("\n", timeout=SECONDS)
        self.assertTrue(wait_for(lambda: self.metrics()["grus_sessions"] == 0, 10))
        # What was counted stays.
        after = self.metrics()
        for name in ("commands", "moved_out_bytes", "moved_in_bytes", "device_seconds"):
            self.assertGreaterEqual(after[f"grus_tenant_{name}_total{of_user}"], found[f"grus_tenant_{name}_total{of_user}"])
        self.assertEqual(after["grus_sessions_started_total"], 1)
        self.assertEqual(after["grus_swap_used_bytes"], 0)

    def test_other_requests_are_refused_and_harm_nobody(self):
        server = self.serve()
        self.assertEqual(self.get("/elsewhere")[0].status, 404)
        self.assertEqual(self.get(method="POST")[0].status, 405)
        silent = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(40)]
        self.assertEqual(self.get()[0].status, 200)
        endless = socket.create_connection(("127.0.0.1", self.port))
        with self.assertRaises(OSError):
            endless.settimeout(SECONDS)
            while True:
                endless.sendall(b"x" * 65536)
        self.assertEqual(through(server, USUAL).returncode, 0)
        for one in (*silent, endless):
            one.close()

    def test_what_makes_no_sense_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("nonsense", "127.0.0.1", "host:port:more"):
                done = subprocess.run([GRUS, "serve", "--listen", f"unix:{pathlib.Path(folder)}/socket", "--metrics", text],
                                      capture_output=True, text=True, timeout=SECONDS, check=False)
                self.assertIn(done.returncode, (1, 2), text)
                self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
