#!/usr/bin/python3
"""What whoever runs `grus serve` can rely on: sandbox, audit, settings, limits, an orderly end, and `grus ps`."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import tomllib
import unittest

sys.dont_write_bytecode = True

from serve_test import GRUS, PROGRAMS, SECONDS, Server, through, wait_for  # noqa: E402

USUAL = PROGRAMS / "remote_usual"
OCLGRIND = pathlib.Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
RUSTICL = pathlib.Path("/etc/OpenCL/vendors/rusticl.icd")


class OperationsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-operations-")))

    def start(self, *options, kind="unix", vendors=None, **environment):
        return self.enterContext(Server(GRUS, kind, vendors, os.environ | environment, options))

    def expect_well(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def grus(self, *arguments, **options):
        return subprocess.run([GRUS, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False, **options)

    def sessions(self, server, control=None):
        done = self.grus("ps", "--json", "--interval", "0.05", "--gpu", control or server.address)
        self.expect_well(done)
        return json.loads(done.stdout)[0]["sessions"]

    @contextlib.contextmanager
    def busy(self, server, control=None):
        """A program that uses the server until it is told to end, or fails."""
        program = subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", USUAL, "--for-ever"],
                                   stderr=subprocess.PIPE, text=True)
        try:
            self.assertTrue(wait_for(lambda: any(one["commands"] > 0 for one in self.sessions(server, control)), 20))
            yield program
        finally:
            program.kill()
            program.communicate()


class SandboxTest(OperationsTest):
    def filters(self, server):
        """Of its workers: 0 without a sandbox."""
        statuses = [pathlib.Path(f"/proc/{worker}/status").read_text() for worker in server.workers()]
        return {line.split()[1] for status in statuses for line in status.splitlines() if line.startswith("Seccomp:")}

    def test_drivers_work_in_it(self):
        server = self.start(POCL_CACHE_DIR=str(self.folder))  # an empty one: PoCL compiles, and runs a linker
        self.expect_well(through(server, USUAL))
        self.assertEqual(self.filters(server), {"2"})
        self.assertTrue(list(self.folder.iterdir()))

    @unittest.skipUnless(RUSTICL.exists(), "rusticl isn't installed")
    def test_rusticl_works_in_it(self):
        self.expect_well(through(self.start(vendors=RUSTICL, RUSTICL_ENABLE="llvmpipe"), USUAL))

    @unittest.skipUnless(OCLGRIND.exists(), "oclgrind isn't installed")
    def test_oclgrind_works_in_it(self):
        self.expect_well(through(self.start(vendors=OCLGRIND), USUAL))

    def test_it_can_be_left_out(self):
        server = self.start("--no-sandbox")
        self.expect_well(through(server, USUAL))
        self.assertEqual(self.filters(server), {"0"})


class AuditTest(OperationsTest):
    def events(self):
        return [json.loads(line) for line in (self.folder / "audit").read_text().splitlines()]

    def named(self, name):
        return [event for event in self.events() if event["event"] == name]

    def test_a_session_is_told_from_its_beginning_to_its_end(self):
        server = self.start("--audit", str(self.folder / "audit"))
        self.expect_well(through(server, USUAL))
        self.assertTrue(wait_for(lambda: self.named("end"), 10))
        start, connect, end = self.events()
        self.assertEqual([start["event"], connect["event"]], ["start", "connect"])
        self.assertEqual(start["listen"], [server.address])
        for event in (connect, end):
            self.assertRegex(event["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(event["peer"]["user"], os.getuid())
            self.assertEqual(event["peer"]["program"], "remote_usual")
            self.assertEqual(event["session"], connect["session"])
        self.assertGreaterEqual(end["commands"], 1000)
        self.assertEqual(end["memory_peak_bytes"], 10 * 64)
        self.assertGreater(end["bytes_in"], 1000)
        self.assertGreater(end["bytes_out"], 64)
        self.assertEqual((self.folder / "audit").stat().st_mode & 0o777, 0o600)

    def test_what_a_killed_worker_did_is_known(self):
        server = self.start("--audit", str(self.folder / "audit"))
        with self.busy(server):
            worker = self.sessions(server)[0]["worker"]
            os.kill(worker, signal.SIGKILL)
            self.assertTrue(wait_for(lambda: self.named("end"), 10))
        self.assertEqual(self.named("end")[0]["why"], "the worker was ended by signal 9")
        self.assertGreater(self.named("end")[0]["commands"], 0)

    def test_clients_over_a_network_are_told_by_their_address(self):
        self.expect_well(through(self.start("--audit", str(self.folder / "audit"), kind="tcp"), USUAL))
        self.assertRegex(self.named("connect")[0]["peer"]["address"], r"^tcp:127\.0\.0\.1:\d+$")

    def test_a_file_that_cant_be_written_is_an_error(self):
        done = self.grus("serve", "--listen", f"unix:{self.folder}/socket", "--audit", str(self.folder / "no" / "audit"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("audit: No such file or directory", done.stderr)


class SettingsTest(OperationsTest):
    def write(self, text):
        file = self.folder / "serve.toml"
        file.write_text(text)
        return str(file)

    def printed(self, *options, **environment):
        done = self.grus("serve", "--print-config", *options, env=os.environ | environment)
        self.expect_well(done)
        self.text = done.stdout
        return tomllib.loads(done.stdout)

    def test_the_command_line_wins(self):
        file = self.write('listen = "unix:/a"\nsessions = 3\nmemory = "2GiB"\nusers = ["root", 7]\nsandbox = false\n')
        settings = self.printed("--config", file, "--sessions", "5", "--grace", "1")
        self.assertEqual(settings["listen"], ["unix:/a"])
        self.assertEqual(settings["sessions"], 5)
        self.assertEqual(settings["grace"], 1)
        self.assertEqual(settings["memory"], "2GiB")
        self.assertEqual(settings["users"], ["root", "7"])
        self.assertIs(settings["sandbox"], False)

    def test_what_is_printed_can_be_read_again(self):
        first = self.printed("--device", 'a "name"', "--drain", "7", "--memory", "1536K")
        self.assertEqual(first["memory"], "1536KiB")
        self.assertEqual(self.printed("--config", self.write(self.text)), first)

    def test_the_users_own_file_is_found(self):
        (self.folder / "grus").mkdir()
        (self.folder / "grus" / "serve.toml").write_text("drain = 77\n")
        self.assertEqual(self.printed(XDG_CONFIG_HOME=str(self.folder))["drain"], 77)

    def test_the_example_is_right(self):
        example = pathlib.Path(os.environ["GRUS_SOURCE"]) / "docs" / "serve.toml"
        self.printed("--config", str(example))
        every = "\n".join(line.removeprefix("#") for line in example.read_text().splitlines() if not line.startswith("# "))
        self.assertEqual(set(self.printed("--config", self.write(every))), set(self.printed()))

    def test_mistakes_are_named_with_their_place(self):
        for text, expected in (
                ("grace = 1\nlisten_at = 2\n", ":2: listen_at: there is no such setting"),
                ('grace = "soon"\n', ":1: grace: it must be a number"),
                ("\nmemory = true\n", ":2: memory: it must be a size"),
                ('memory = "2 lightyears"\n', ":1: memory: it must be a size"),
                ('sandbox = "no"\n', ":1: sandbox: it must be true or false"),
                ("listen = [1.5]\n", ":1: listen: it must be a list of texts"),
                ("grace = 1\ngrace = \n", ":2: ")):
            with self.subTest(text):
                done = self.grus("serve", "--config", self.write(text))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(str(self.folder / "serve.toml") + expected, done.stderr)

    def test_a_file_that_isnt_there_is_an_error(self):
        done = self.grus("serve", "--config", str(self.folder / "none"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("no such file", done.stderr)


class DevicesTest(OperationsTest):
    def test_only_those_that_were_named_are_offered(self):
        self.expect_well(through(self.start("--device", "nothing", "--device", "Portable"), USUAL))
        done = through(self.start("--device", "nothing"), USUAL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("platform: OpenCL error -1001", done.stderr)

    def test_one_that_is_hidden_cant_be_named(self):
        server = self.start("--device", "nothing", "--audit", str(self.folder / "audit"), kind="tcp")
        host, port = server.address.removeprefix("tcp:").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(struct.pack("<IHHIIQ", 0x53555247, 1, 1, 0, 0, 0))
            self.assertEqual(len(client.recv(72, socket.MSG_WAITALL)), 72)
            hello, name_device = 0, 2
            body = struct.pack("<Q", 0)
            client.sendall(struct.pack("<IHHQQ", len(body), hello, 0, 1, 0) + body)
            body = struct.pack("<IIQ", 0, 0, 1 << 24)
            client.sendall(struct.pack("<IHHQQ", len(body), name_device, 0, 0, 0) + body)
            while client.recv(4096):
                pass
        self.assertTrue(wait_for(lambda: '"end"' in (self.folder / "audit").read_text(), 10))
        end = json.loads((self.folder / "audit").read_text().splitlines()[-1])
        self.assertEqual(end["why"], "a platform that isn't there")


class EndTest(OperationsTest):
    def test_sessions_are_ended_at_once(self):
        for kind in ("tcp", "unix"):
            control = f"unix:{self.folder}/control"
            audit = self.folder / f"audit-{kind}"
            server = self.start("--listen", control, "--audit", str(audit), kind=kind)
            with self.busy(server, control) as program:
                server.process.terminate()
                self.assertEqual(server.process.wait(5), 0)
                _, errors = program.communicate(timeout=10)
                self.assertEqual(program.returncode, 1, errors)
                self.assertIn("it ended this session: the server ended; OpenCL calls fail from here on", errors)
            events = [json.loads(line) for line in audit.read_text().splitlines()]
            self.assertEqual([event["event"] for event in events], ["start", "connect", "end", "stop"])
            self.assertEqual(events[2]["why"], "the server ended")

    def test_systemd_is_told(self):
        told = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        told.bind(str(self.folder / "notify"))
        told.settimeout(10)
        server = self.start("--drain", "60", NOTIFY_SOCKET=str(self.folder / "notify"))
        self.assertEqual(told.recv(100), b"READY=1")
        with self.busy(server):
            server.process.terminate()
            self.assertEqual(told.recv(100), b"STOPPING=1")
            self.assertIsNone(server.process.poll())

    def test_sessions_may_end_by_themselves(self):
        server = self.start("--drain", "60")
        with self.busy(server) as program:
            server.process.terminate()
            refused = through(server, USUAL)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("it is about to end", refused.stderr)
            self.assertIsNone(program.poll())
            self.assertIsNone(server.process.poll())
            program.kill()
            self.assertEqual(server.process.wait(10), 0)

    def test_the_time_for_that_is_limited(self):
        server = self.start("--drain", "1")
        with self.busy(server) as program:
            server.process.terminate()
            self.assertEqual(server.process.wait(10), 0)
            program.communicate(timeout=10)
            self.assertEqual(program.returncode, 1)


class LimitsTest(OperationsTest):
    def test_there_are_no_more_sessions_than_allowed(self):
        server = self.start("--sessions", "1", "--audit", str(self.folder / "audit"))
        with self.busy(server):
            done = through(server, USUAL)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("it has as many sessions as it may have", done.stderr)
        self.assertIn('"why":"too many sessions"', (self.folder / "audit").read_text())
        self.assertTrue(wait_for(lambda: not self.sessions(server), 10))
        self.expect_well(through(server, USUAL))

    def test_memory_that_a_session_may_not_have_is_an_error_of_the_call(self):
        for kind in ("unix", "tcp"):
            server = self.start("--memory", "640", kind=kind)
            self.expect_well(through(server, USUAL))  # ten buffers of 64 bytes
            server = self.start("--memory", "639", kind=kind)
            done = through(server, USUAL)
            self.assertEqual(done.returncode, 1)
            self.assertIn("buffer: OpenCL error -4", done.stderr)


class UsersTest(OperationsTest):
    @unittest.skipUnless(os.getuid() == 0, "only root can be somebody else")
    def test_who_is_named_may_come(self):
        server = self.start("--user", "4711")
        path = server.address.removeprefix("unix:")
        os.chmod(pathlib.Path(path).parent, 0o755)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o666)
        seen = self.grus("ps", "--gpu", server.address, user=4711)
        self.expect_well(seen)
        with self.busy(server):
            self.assertIn("0 sessions", self.grus("ps", "--gpu", server.address, user=4711).stdout)
            self.assertIn("1 sessions", self.grus("ps", "--gpu", server.address).stdout)
        refused = self.grus("ps", "--gpu", server.address, user=4712)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("it doesn't admit this user", refused.stderr)

    def test_a_socket_is_its_owners_otherwise(self):
        self.assertEqual(os.stat(self.start().address.removeprefix("unix:")).st_mode & 0o777, 0o600)

    def test_a_user_who_isnt_there_is_an_error(self):
        done = self.grus("serve", "--user", "nobody-of-this-name")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no such user", done.stderr)


class PsTest(OperationsTest):
    def test_a_session_is_shown(self):
        server = self.start()
        self.assertEqual(self.sessions(server), [])
        with self.busy(server):
            session = self.sessions(server)[0]
            self.assertEqual(session["peer"]["program"], "remote_usual")
            self.assertEqual(session["peer"]["user"], os.getuid())
            self.assertIn(session["worker"], server.workers())
            self.assertEqual(len(session["devices"]), 1)
            self.assertGreater(session["seconds"], 0)
            self.assertGreater(session["round_trips"], 0)
            shown = self.grus("ps", "--interval", "0.2", "--gpu", server.address)
            self.expect_well(shown)
            self.assertIn(session["session"][:8], shown.stdout)
            self.assertIn(session["devices"][0], shown.stdout)
            self.assertTrue(wait_for(lambda: any(
                one["commands_per_second"] > 0 and one["objects"]["memory"] == 10 for one in self.sessions(server)), 10))

    def test_buffers_that_nobody_used_are_shown_if_they_stay(self):
        server = self.start()
        with subprocess.Popen([GRUS, "run", "--gpu", server.address, "--", USUAL, "--come-and-go"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            self.assertEqual(client.stdout.readline(), "ready\n")
            self.assertTrue(wait_for(lambda: self.sessions(server)[0]["objects"]["memory"] == 1, 10), self.sessions(server))
            told = self.sessions(server)[0]
            client.communicate("\n")
        self.assertEqual(client.returncode, 0)
        self.assertEqual(told["memory_bytes"], 4)
        self.assertLess(told["bytes_in"], 100000)  # not one message for each

    def test_a_server_that_is_not_there_is_named(self):
        done = self.grus("ps", "--gpu", f"unix:{self.folder}/socket")
        self.assertEqual(done.returncode, 1)
        self.assertIn("is `grus serve` running there?", done.stderr)

    def test_over_tcp_what_comes_from_the_same_host_is_shown(self):
        server = self.start(kind="tcp")
        with self.busy(server):
            self.assertEqual(len(self.sessions(server)), 1)
            self.assertRegex(self.sessions(server)[0]["peer"]["address"], r"^tcp:127\.0\.0\.1:")


if __name__ == "__main__":
    unittest.main()
