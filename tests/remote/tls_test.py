#!/usr/bin/python3
"""`grus serve` over TLS: who is let in, who isn't, and what both sides are told."""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
sys.dont_write_bytecode = True

from faults_test import TENANT, cpu_seconds_of  # noqa: E402
from serving import Server, wait_for  # noqa: E402

BUILD = pathlib.Path(os.environ["GRUS_BUILD"])
GRUS = BUILD / "bin" / "grus"
USUAL = BUILD / "bin" / "tests" / "remote_usual"
SECONDS = 60

# What clients say first, in plain text; and the start and the end of an answer that refuses.
PREAMBLE = struct.Struct("=IHHIIQ")
MAGIC = 0x53555247
SESSION, RESUME = 0, 1
PLAIN, TLS = 0, 1
HAS_NO_SUCH_SESSION = 6


def preamble(purpose=SESSION, security=TLS, session=0):
    return PREAMBLE.pack(MAGIC, 1, 1, purpose, security, session)


def make_keys(folder, *options):
    done = subprocess.run([GRUS, "keys", folder, *options], capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def run(address, keys, *arguments, **options):
    environment = {name: value for name, value in os.environ.items() if name != "GRUS_KEYS"}
    command = [GRUS, "run", "--gpu", address, *(["--keys", keys] if keys else []), "--", USUAL, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False,
                          env=environment | options)


def memory_of(pid):
    """All that a process has in memory."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            place, rights, _, _, _, *name = line.split()
            first, last = (int(number, 16) for number in place.split("-"))
            if not rights.startswith("rw") or last - first > 1 << 30 or name == ["[vvar]"]:
                continue
            memory.seek(first)
            with contextlib.suppress(OSError):
                yield memory.read(last - first)


def traces_of(key):
    """What a private key looks like in memory: its number in either order, and its file's text."""
    text = subprocess.run(["openssl", "pkey", "-in", key, "-text", "-noout"], capture_output=True, text=True, check=True).stdout
    number = bytes.fromhex(re.sub(r"[\s:]", "", re.search(r"priv:(.*?)pub:", text, re.DOTALL)[1]))
    return number, number[::-1], key.read_bytes().splitlines()[1]


class Proxy:
    """Between a client and a server. It can drop the connections there are, when nothing is on its way."""

    def __init__(self, address):
        self.server = ("127.0.0.1", int(address.rsplit(":", 1)[1]))
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self.listening.getsockname()[1]}"
        self.pairs = []
        self.moved = time.monotonic()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                pair = (client, socket.create_connection(self.server))
                self.pairs.append(pair)
                threading.Thread(target=self.move, args=pair, daemon=True).start()

    def move(self, *pair):
        with contextlib.suppress(OSError, ValueError):
            while True:
                for ready in select.select(pair, [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return [end.shutdown(socket.SHUT_RDWR) for end in pair]
                    self.moved = time.monotonic()
                    pair[ready is pair[0]].sendall(data)

    def drop(self):
        while time.monotonic() - self.moved < 0.2:
            time.sleep(0.02)
        for pair in self.pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self):
        for end in (self.listening, *sum(self.pairs, ())):
            end.close()


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="grus-tls-")))
        cls.keys = cls.folder / "keys"
        make_keys(cls.keys, "--host", "127.0.0.1", "--host", "localhost", "--token")

    def some(self, *files, of=None):
        """A folder with only these of all keys."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir=self.folder)))
        for file in files:
            shutil.copy((of or self.keys) / file, folder)
        return folder

    def certificate(self, of=None):
        return self.some("ca.crt", "client.crt", "client.key", of=of)

    def without_token(self):
        return self.some("ca.crt", "server.crt", "server.key")

    def start(self, keys, *options):
        self.log = self.enterContext(tempfile.NamedTemporaryFile("r"))
        errors = self.enterContext(open(self.log.name, "w", encoding="utf-8"))
        return self.enterContext(Server(GRUS, "tcp", options=(*(("--keys", str(keys)) if keys else ()), *options),
                                        errors=errors))

    def expect_well(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def expect_refusal(self, server, keys, client_says, server_says=None):
        begun = time.monotonic()
        done = run(server.address, keys)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, client_says)
        if server_says:
            self.expect_in_log(r"tcp:127\.0\.0\.1:\d+ was refused: " + server_says)

    def expect_in_log(self, words):
        text, end = "", time.monotonic() + 10
        while not re.search(words, text) and time.monotonic() < end:
            text += self.log.read()
            time.sleep(0.02)
        self.assertRegex(text, words)

    def test_certificates_let_in(self):
        server = self.start(self.without_token())
        for arguments in ((), ("--both-ways",), ("--print",)):
            self.expect_well(run(server.address, self.certificate(), *arguments))

    def test_a_server_may_be_called_by_name(self):
        server = self.start(self.keys)
        address = server.address.replace("127.0.0.1", "localhost")
        self.expect_well(run(address, self.certificate()))

    def test_a_token_lets_in(self):
        self.expect_well(run(self.start(self.keys).address, self.some("ca.crt", "token")))

    def test_one_more_client_can_come(self):
        make_keys(self.keys, "--client", "laptop")
        self.expect_well(run(self.start(self.without_token()).address, self.keys / "laptop"))

    def test_every_address_can_be_served_with_keys(self):
        with subprocess.Popen([GRUS, "serve", "--listen", "tcp:0.0.0.0:0", "--keys", self.keys], text=True,
                              stdout=subprocess.PIPE) as server:
            port = server.stdout.readline().strip().rsplit(":", 1)[1]
            self.expect_well(run(f"tcp:127.0.0.1:{port}", self.certificate()))
            server.terminate()

    def test_another_authoritys_client_is_refused(self):
        make_keys(self.folder / "others", "--host", "127.0.0.1")
        mixed = self.certificate(self.folder / "others")
        shutil.copy(self.keys / "ca.crt", mixed)
        self.expect_refusal(self.start(self.keys), mixed, "has not made this client's certificate",
                            "its certificate is not accepted: .*issuer")

    def test_another_authoritys_server_is_refused(self):
        make_keys(self.folder / "strangers", "--host", "127.0.0.1")
        self.expect_refusal(self.start(self.folder / "strangers"), self.certificate(),
                            "its certificate is not accepted: .*issuer")

    def test_certificates_expire(self):
        make_keys(self.keys, "--client", "old", "--days", "0")
        self.expect_refusal(self.start(self.keys), self.keys / "old", "this client's certificate has expired",
                            "its certificate is not accepted: certificate has expired")
        make_keys(self.folder / "old", "--host", "127.0.0.1", "--days", "0")
        self.expect_refusal(self.start(self.folder / "old"), self.certificate(self.folder / "old"),
                            "its certificate is not accepted: certificate has expired")

    def test_a_client_without_a_certificate_is_refused(self):
        self.expect_refusal(self.start(self.without_token()), self.some("ca.crt", "token"), "it wants a certificate",
                            "it has no certificate")

    def test_a_server_by_another_name_is_refused(self):
        for host, reason in (("192.0.2.7", "IP address mismatch"), ("gpu.example", "IP address mismatch")):
            make_keys(self.folder / host, "--host", host)
            self.expect_refusal(self.start(self.folder / host), self.certificate(self.folder / host), reason)

    def test_a_clients_certificate_is_no_servers(self):
        swapped = self.some("ca.crt")
        for ending in ("crt", "key"):
            shutil.copy(self.keys / f"client.{ending}", swapped / f"server.{ending}")
        self.expect_refusal(self.start(swapped), self.certificate(), "its certificate is not accepted: .*purpose")

    def test_a_wrong_token_is_refused(self):
        guess = self.some("ca.crt", "token")
        (guess / "token").write_text("0" * 64)
        self.expect_refusal(self.start(self.keys), guess, "its token is another than this client's", "a wrong token")
        (guess / "token").write_text("short")
        self.expect_refusal(self.start(self.keys), guess, "a token has 32 to 512 characters")

    def test_a_plain_client_is_refused_and_told_why(self):
        self.expect_refusal(self.start(self.keys), None, "it wants TLS: name the folder of your keys",
                            "it doesn't use TLS")

    def test_a_plain_server_is_refused_and_told_why(self):
        self.expect_refusal(self.start(None), self.certificate(), "it uses no TLS", "it uses TLS")

    def test_older_versions_of_tls_are_refused(self):
        server = self.start(self.keys)
        context = ssl.create_default_context(cafile=self.keys / "ca.crt")
        context.load_cert_chain(self.keys / "client.crt", self.keys / "client.key")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context.minimum_version = context.maximum_version = version
            with socket.create_connection(("127.0.0.1", int(server.address.rsplit(":", 1)[1])), 10) as client:
                client.sendall(preamble())
                if version == ssl.TLSVersion.TLSv1_3:
                    with context.wrap_socket(client, server_hostname="127.0.0.1") as inside:
                        self.assertEqual(inside.version(), "TLSv1.3")
                else:
                    with self.assertRaisesRegex(ssl.SSLError, "protocol version"):
                        context.wrap_socket(client, server_hostname="127.0.0.1")
            context.maximum_version = ssl.TLSVersion.TLSv1_3
        self.expect_in_log("was refused: .*unsupported protocol")

    def test_who_says_nothing_keeps_nobody_waiting(self):
        server = self.start(self.keys)
        with socket.create_connection(("127.0.0.1", int(server.address.rsplit(":", 1)[1])), 20) as client:
            client.sendall(preamble())
            self.expect_well(run(server.address, self.certificate()))
            self.assertEqual(client.recv(1), b"")
        self.expect_in_log("in time")

    def test_keys_that_others_can_read_are_refused(self):
        for name in ("server.key", "token"):
            open_to_all = self.some("ca.crt", "server.crt", "server.key", "token")
            (open_to_all / name).chmod(0o644)
            done = subprocess.run([GRUS, "serve", "--listen", "tcp:127.0.0.1:0", "--keys", open_to_all], timeout=SECONDS,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"run `chmod 600 {open_to_all / name}`", done.stderr)
        theirs = self.certificate()
        (theirs / "client.key").chmod(0o640)
        self.expect_refusal(self.start(self.keys), theirs, f"run `chmod 600 {theirs / 'client.key'}`")

    def test_other_hosts_need_keys(self):
        nothing = {name: value for name, value in os.environ.items() if name != "GRUS_KEYS"}
        nothing |= {"XDG_CONFIG_HOME": str(self.some())}
        for command in ([GRUS, "serve", "--listen", "tcp:0.0.0.0:0"], [GRUS, "serve", "--listen", "tcp:[::]:0"],
                        [GRUS, "serve", "--listen", "tcp:127.example:0"],
                        [GRUS, "run", "--gpu", "tcp:192.0.2.1:7070", "--", USUAL]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=nothing)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("`grus keys` makes keys", done.stderr)

    @contextlib.contextmanager
    def session(self, server, keys):
        """A program that has done something, and waits to be told to do it again."""
        with subprocess.Popen([GRUS, "run", "--gpu", server.address, "--keys", keys, "--", USUAL, "--twice"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
            self.assertEqual(client.stdout.readline(), "once\n")
            yield client
            client.kill()

    def test_workers_dont_have_the_servers_key(self):
        server = self.start(self.keys)
        ready = server.workers()
        with self.session(server, self.certificate()):
            traces = traces_of(self.keys / "server.key")
            for process in ready:
                for stretch in memory_of(process):
                    self.assertFalse(any(trace in stretch for trace in traces), process)

    def test_strangers_use_up_nothing(self):
        server = self.start(self.keys, "--sessions", "2")
        before = server.workers()
        port = int(server.address.rsplit(":", 1)[1])
        with contextlib.ExitStack() as crowd:
            for number in range(400):
                stranger = crowd.enter_context(socket.create_connection(("127.0.0.1", port), 10))
                stranger.sendall((preamble(), preamble()[:9], b"", preamble() + b"\x16\x03\x01\x02\x00")[number % 4])
            self.assertEqual(server.workers(), before)
            begun = time.monotonic()
            self.expect_well(run(server.address, self.certificate()))
            self.assertLess(time.monotonic() - begun, 8)  # none of them was waited for
            self.assertLess(len(list(pathlib.Path(f"/proc/{server.door()}/task").iterdir())), 300)
        self.expect_in_log("it was not let in in time")
        self.assertLess(len(pathlib.Path(self.log.name).read_text().splitlines()), 200)

    def test_a_full_server_says_so(self):
        server = self.start(self.keys, "--sessions", "1")
        with self.session(server, self.certificate()):
            self.expect_refusal(server, self.certificate(), "it has as many sessions as it may have", "too many sessions")

    def test_a_door_that_is_lost_is_replaced(self):
        server = self.start(self.keys)
        with self.session(server, self.certificate()) as client:
            os.kill(server.door(), signal.SIGKILL)
            self.expect_in_log("what lets clients in has ended")
            self.expect_well(run(server.address, self.certificate()))
            _, errors = client.communicate("\n", timeout=SECONDS)
            self.assertEqual(client.returncode, 0, errors)

    def test_a_server_ends_with_its_terminal(self):
        terminal, its_end = pty.openpty()
        server = subprocess.Popen([GRUS, "serve", "--listen", "tcp:127.0.0.1:0", "--keys", self.keys], stdin=its_end, text=True,
                                  stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        os.close(its_end)
        address = server.stdout.readline().split()[-1]
        server.send_signal(signal.SIGHUP)
        self.expect_well(run(address, self.certificate()))
        os.close(terminal)
        server.send_signal(signal.SIGHUP)
        self.assertEqual(server.wait(10), 0)

    def test_a_revoked_client_stays_outside(self):
        keys = self.some("ca.crt", "ca.key", "server.crt", "server.key")
        make_keys(keys, "--client", "laptop")
        make_keys(keys, "--client", "desk")
        server = self.start(keys, "--audit", str(self.folder / "audit"))
        with self.session(server, keys / "laptop") as laptop, self.session(server, keys / "desk") as desk:
            make_keys(keys, "--revoke", "laptop")
            self.expect_refusal(server, keys / "laptop", "this client's certificate was revoked",
                                "the certificate of laptop was revoked")
            self.expect_well(run(server.address, keys / "desk"))
            self.assertIsNone(laptop.poll())
            server.process.send_signal(signal.SIGHUP)
            self.assertTrue(wait_for(lambda: "its certificate was revoked" in (self.folder / "audit").read_text()))
            _, errors = laptop.communicate("\n", timeout=10)
            self.assertEqual(laptop.returncode, 1, errors)
            self.assertIn("it ended this session: its certificate was revoked; OpenCL calls fail from here on", errors)
            _, errors = desk.communicate("\n", timeout=10)
            self.assertEqual(desk.returncode, 0, errors)
        events = [json.loads(line) for line in (self.folder / "audit").read_text().splitlines()]
        self.assertEqual([event["peer"]["name"] for event in events if event["event"] == "connect"],
                         ["laptop", "desk", "desk"])
        self.assertEqual([event["why"] for event in events if event["event"] == "end" and event["peer"]["name"] == "laptop"],
                         ["its certificate was revoked"])
        with self.assertRaisesRegex(RuntimeError, "laptop was revoked: give the new one another name"):
            make_keys(keys, "--client", "laptop", "--force")

    def test_everybody_sees_their_own_sessions(self):
        keys = self.some("ca.crt", "ca.key", "server.crt", "server.key")
        for name in ("laptop", "desk"):
            make_keys(keys, "--client", name)
        server = self.start(keys)

        def asked(*options):
            environment = {name: value for name, value in os.environ.items() if name != "GRUS_KEYS"}
            return subprocess.run([GRUS, "ps", "--gpu", server.address, "--json", "--interval", "0", *options], text=True,
                                  capture_output=True, timeout=SECONDS, check=False, env=environment)

        with self.session(server, keys / "laptop") as laptop, self.session(server, keys / "desk") as desk:
            for name in ("laptop", "desk"):
                done = asked("--keys", str(keys / name))
                self.expect_well(done)
                sessions = json.loads(done.stdout)[0]["sessions"]
                self.assertEqual([session["peer"]["name"] for session in sessions], [name])
                self.assertGreater(sessions[0]["round_trips"], 0)
            done = asked("--keys", str(self.certificate()))
            self.assertEqual(json.loads(done.stdout)[0]["sessions"], [])
            make_keys(keys, "--revoke", "desk")
            done = asked("--keys", str(keys / "desk"))
            self.assertEqual((done.returncode, json.loads(done.stdout)), (1, []))
            self.assertIn("this client's certificate was revoked", done.stderr)
            for process in (laptop, desk):
                process.communicate("\n", timeout=10)
        done = subprocess.run([GRUS, "tenants", server.address, "--set", "desk", "--weight", "2"], text=True,
                              capture_output=True, timeout=SECONDS, check=False,
                              env=os.environ | {"GRUS_KEYS": str(keys / "desk")})
        self.assertEqual(done.returncode, 1)
        self.assertIn("it is changed on its own host only", done.stderr)

    def test_a_list_that_cant_be_read_lets_nobody_in(self):
        keys = self.without_token()
        server = self.start(keys)
        (keys / "revoked").mkdir()
        self.expect_refusal(server, self.certificate(), "closed", ".*/revoked: ")

    def test_a_session_goes_on_after_its_connection(self):
        for keys in (self.certificate(), self.some("ca.crt", "token")):
            proxy = Proxy(self.start(self.keys).address)
            with subprocess.Popen([GRUS, "run", "--gpu", proxy.address, "--keys", keys, "--", USUAL, "--twice"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
                self.assertEqual(client.stdout.readline(), "once\n")
                proxy.drop()
                _, errors = client.communicate("\n", timeout=SECONDS)
            self.assertEqual(client.returncode, 0, errors)
            self.assertIn("connected again", errors)
            proxy.close()

    def test_a_session_goes_on_whose_kernel_runs_when_its_connection_ends(self):
        keys = self.certificate()
        for kind in ("tls", "tcp"):
            server = self.start(self.keys) if kind == "tls" else self.enterContext(Server(GRUS, kind))
            worker, = server.workers()
            proxy = Proxy(server.address)
            with subprocess.Popen([GRUS, "run", "--gpu", proxy.address, *(["--keys", keys] if kind == "tls" else []), "--",
                                   TENANT, "--ms", "4000", "--seconds", "0.01", "--depth", "1"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
                self.assertEqual(client.stdout.readline(), "ready\n")
                before = cpu_seconds_of(worker)
                client.stdin.write("\n")
                client.stdin.flush()
                self.assertTrue(wait_for(lambda: cpu_seconds_of(worker) > before + 0.3, 20))
                proxy.drop()
                _, errors = client.communicate(timeout=SECONDS)
            self.assertEqual(client.returncode, 0, errors)
            self.assertIn("connected again", errors)
            proxy.close()

    def test_a_session_that_has_ended_cant_go_on(self):
        server = self.start(self.keys)
        with socket.create_connection(("127.0.0.1", int(server.address.rsplit(":", 1)[1])), 10) as client:
            client.sendall(preamble(RESUME, session=1) + b"\x16\x03\x01")
            answer = client.recv(72, socket.MSG_WAITALL)
        self.assertEqual(struct.unpack_from("=I64xI", answer), (MAGIC, HAS_NO_SUCH_SESSION))
        client = subprocess.Popen([GRUS, "run", "--gpu", server.address, "--keys", self.certificate(), "--", USUAL, "--twice"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(client.stdout.readline(), "once\n")
        os.kill(min(server.workers()), 9)
        _, errors = client.communicate("\n", timeout=10)
        self.assertEqual(client.returncode, 1, errors)
        self.assertIn("it has ended the session", errors)


class KeysTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-keys-"))) / "some" / "keys"

    def keys(self, *options):
        return subprocess.run([GRUS, "keys", self.folder, *options], capture_output=True, text=True, timeout=SECONDS,
                              check=False)

    def test_they_say_what_they_are_for(self):
        self.assertEqual(self.keys("--host", "gpu.example", "--host", "2001:db8::7").returncode, 0)
        for name, expected in (("ca", ("CA:TRUE, pathlen:0", "Certificate Sign, CRL Sign")),
                               ("server", ("CA:FALSE", "TLS Web Server Authentication", "DNS:gpu.example",
                                           "IP Address:2001:DB8:0:0:0:0:0:7")),
                               ("client", ("CA:FALSE", "Digital Signature", "TLS Web Client Authentication"))):
            text = subprocess.run(["openssl", "x509", "-in", self.folder / f"{name}.crt", "-noout", "-text"],
                                  capture_output=True, text=True, check=True).stdout
            for words in expected:
                self.assertIn(words, text)
        verified = subprocess.run(["openssl", "verify", "-x509_strict", "-CAfile", self.folder / "ca.crt",
                                   self.folder / "server.crt", self.folder / "client.crt"], check=False)
        self.assertEqual(verified.returncode, 0)

    def test_keys_are_private(self):
        self.assertEqual(self.keys("--host", "gpu.example", "--token").returncode, 0)
        for name in ("ca.key", "server.key", "client.key", "token"):
            self.assertEqual((self.folder / name).stat().st_mode & 0o777, 0o600)
        self.assertGreaterEqual(len((self.folder / "token").read_text().strip()), 32)

    def test_what_is_there_is_kept(self):
        self.keys("--host", "gpu.example")
        before = (self.folder / "ca.crt").read_text()
        again = self.keys("--host", "gpu.example")
        self.assertEqual(again.returncode, 1)
        self.assertRegex(again.stderr, re.escape(str(self.folder)) + "/ca.crt is there already; with --force")
        self.assertEqual((self.folder / "ca.crt").read_text(), before)
        self.assertEqual(self.keys("--host", "gpu.example", "--force").returncode, 0)
        self.assertNotEqual((self.folder / "ca.crt").read_text(), before)

    def test_wrong_usage(self):
        for options in ((), ("--host", "a,DNS:b"), ("--client", "../x"), ("--host", "a", "--days", "-1"),
                        ("--host", "a", "--client", "b"), ("--host", "a", "--revoke", "b"), ("--revoke", "a b")):
            self.assertEqual(self.keys(*options).returncode, 2, options)
            self.assertFalse(self.folder.exists())
        self.assertIn("make the authority first", self.keys("--client", "laptop").stderr)


if __name__ == "__main__":
    unittest.main()
