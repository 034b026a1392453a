#!/usr/bin/python3
"""`grus vm` with two QEMUs and a guest's agent that are made up: what each answers, and when one is gone, is up to the test."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import unittest

GRUS = pathlib.Path(os.environ["GRUS_BUILD"]) / "bin/grus"
PROXY = "tcp:10.77.0.1:7070"
SECONDS = 120


class Lines:
    """Answers lines of JSON at a socket, for any number of connections."""

    def __init__(self, path):
        self.path = path
        self.asked = []  # by name, in their order
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rw") as lines:
            def send(line):
                lines.write(json.dumps(line) + "\n")
                lines.flush()

            self.greet(send)
            for text in lines:
                if not self.answer(json.loads(text), send):
                    return

    def greet(self, send):
        pass

    def answer(self, request, send):
        """Whether the connection is to be kept."""
        raise NotImplementedError

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


class Qemu(Lines):
    def __init__(self, path, status, has_card):
        self.status, self.has_card = status, has_card
        self.on_sent = lambda: None  # once the machine has gone
        self.is_gone = False
        super().__init__(path)

    def greet(self, send):
        send({"QMP": {}})

    def answer(self, request, send):
        if self.is_gone:
            return False
        command = request["execute"]
        self.asked.append(command)
        answers = {"query-status": {"status": self.status}, "query-migrate": {"downtime": 20, "total-time": 100},
                   "qom-list": [{"name": "gpu", "type": "child<x>"}] if self.has_card else []}
        if command == "cont":
            self.status = "running"
        if command in ("device_add", "device_del"):
            self.has_card = command == "device_add"
        if command == "migrate":
            self.status = "postmigrate"
            self.on_sent()
        send({"return": answers.get(command, {})})
        if command == "device_del":
            send({"event": "DEVICE_DELETED", "data": {"device": "gpu"}})
        if command == "migrate":
            send({"event": "MIGRATION", "data": {"status": "completed"}})
        return True


class Agent(Lines):
    def __init__(self, path, at):
        self.programs = [{"pid": 7, "program": "beats", "at": at}]
        self.answers = {}  # by command: what else it says, or None: it is ended before it answers, once
        self.requests = {}  # by command, the last
        super().__init__(path)

    def answer(self, request, send):
        command = request["command"]
        self.asked.append(command)
        self.requests[command] = request
        more = self.answers.get(command, {})
        if more is None:
            del self.answers[command]
            return False
        sessions = [{"pid": one["pid"], "program": one["program"], "from": one["at"], "ok": True} for one in self.programs]
        send({"id": request["id"], "ok": True, "programs": self.programs, "sessions": sessions, **more})
        return True


class MigrationTest(unittest.TestCase):
    def machines(self, card=True, at="local"):
        """Two QEMUs, and the agent of the guest that goes from one to the other."""
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="grus-vm-")))
        a = Qemu(self.folder / "a.qmp", "running", card)
        b = Qemu(self.folder / "b.qmp", "inmigrate", False)
        agent = Agent(self.folder / "agent", at)
        for one in (a, b, agent):
            self.addCleanup(one.close)
        a.on_sent = lambda: setattr(b, "status", "running")
        gpu = 'gpu = { driver = "x", id = "gpu" }\n' if card else ""
        (self.folder / "vms.toml").write_text("".join(
            f'[{name}]\nqmp = "{self.folder}/{name}.qmp"\nagent = "{agent.path}"\nincoming = "unix:{name}"\n'
            f'proxy = "{PROXY}"\n{gpu}' for name in ("a", "b")))
        return a, b, agent

    def vm(self, *arguments, status=0):
        done = subprocess.run([GRUS, "vm", *arguments, "--config", self.folder / "vms.toml", "--json"], text=True,
                              capture_output=True, check=False, timeout=SECONDS)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(done.stdout), done.stderr

    def migrate(self, *options, status=0):
        return self.vm("migrate", "a", "--to", "b", *options, status=status)

    def test_it_goes(self):
        a, b, agent = self.machines()
        outcome, said = self.migrate()
        self.assertEqual((outcome["runs_at"], outcome["gpu"], said), ("b", "card", ""))
        self.assertEqual((a.has_card, b.has_card), (False, True))
        self.assertEqual(agent.asked, ["hello", "move", "unload", "hello", "load", "return", "hello"])
        self.assertEqual([one["pid"] for one in agent.requests["return"]["left"]], [7])

    def test_programs_that_dont_come_back(self):
        refused = {"ok": False, "error": "beats[7]: no\x1b room", "sessions": [{"pid": 7, "program": "beats", "ok": False}]}
        for command, options in (("return", ()), ("resume", ("--stop-and-copy",))):
            with self.subTest(command):
                _, _, agent = self.machines()
                agent.answers[command] = refused
                outcome, said = self.migrate(*options, status=1)
                advice = " ".join(("grus vm attach-gpu b", *options))
                text = f"the guest runs at b, with its card, but not all programs came back: in the guest: beats[7]: no  room. `{advice}`"
                self.assertIn(text, outcome["error"])
                self.assertIn(text, said)
                self.assertEqual((outcome["ok"], outcome["runs_at"], outcome["gpu"]), (False, "b", "card"))
                outcome, _ = self.vm("attach-gpu", "b", *options, status=1)
                self.assertIn(text, outcome["error"])
                self.assertNotIn("left", agent.requests[command])  # nobody knows by then

    def test_a_guest_without_a_card(self):
        _, b, agent = self.machines(card=False, at="virtio-serial:")
        outcome, _ = self.migrate()
        self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("b", "host"))
        self.assertNotIn("device_add", b.asked)
        self.assertNotIn("load", agent.asked)

    def test_its_programs_dont_come_back(self):
        _, _, agent = self.machines(card=False, at="virtio-serial:")
        agent.answers["return"] = {"ok": False, "error": "nobody is there"}
        outcome, _ = self.migrate(status=1)
        self.assertRegex(outcome["error"], "the guest runs at b, with the host's GPU, but not all programs came back: .*: nobody is "
                         "there. `grus move` in the guest")
        self.assertEqual(outcome["gpu"], "host")

    def test_a_destination_that_cant_be_reached_any_more(self):
        """The guest may run there, so it mustn't run here."""
        a, b, _ = self.machines()

        def lose():
            b.is_gone = True

        a.on_sent = lose
        outcome, _ = self.migrate(status=1)
        self.assertRegex(outcome["error"], "QEMU has handed the guest over to b, so it isn't continued at a")
        self.assertEqual(a.status, "postmigrate")
        self.assertNotIn("cont", a.asked)

    def test_the_agent_is_ended(self):
        for command, options in (("load", ()), ("return", ()), ("resume", ("--stop-and-copy",))):
            with self.subTest(command):
                _, _, agent = self.machines()
                agent.answers[command] = None
                outcome, _ = self.migrate(*options)
                self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("b", "card"))
                self.assertEqual(agent.asked.count(command), 2)

    def test_the_agent_is_ended_while_the_guest_has_to_stay(self):
        for command in ("move", "unload"):
            with self.subTest(command):
                a, _, agent = self.machines()
                agent.answers = {command: None, "return": {"sessions": []}}  # since nobody had left
                outcome, _ = self.migrate(status=1)
                self.assertRegex(outcome["error"], "connection was closed; the guest runs at a, with its card and its programs on it")
                self.assertEqual((a.status, a.has_card, outcome["gpu"]), ("running", True, "card"))
                self.assertNotIn("ended", outcome)

    def test_programs_that_ended(self):
        a, b, agent = self.machines()

        def end():
            b.status = "running"
            agent.programs = []

        a.on_sent = end
        outcome, said = self.migrate()
        self.assertEqual(outcome["ended"], ["beats[7]"])
        self.assertIn("beats[7] ended meanwhile", said)

    def test_a_driver_that_stays_loaded(self):
        _, _, agent = self.machines()
        agent.answers["move"] = {"sessions": [{"pid": 7, "program": "beats", "from": "local", "ok": True,
                                               "stays_loaded": ["libx.so stays loaded:\x1b in use"]}]}
        _, said = self.migrate()
        self.assertIn("grus: beats[7]: libx.so stays loaded:  in use\n", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
