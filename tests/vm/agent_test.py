#!/usr/bin/python3
"""`grus agent` without a guest: a terminal stands in for the port. And what `grus vm` says about its file."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import tty
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(os.environ["GRUS_SOURCE"]) / "tests/moves"))
from subjects import ENVIRONMENT, GRUS, SECONDS, Server, TestCase  # noqa: E402


class Agent:
    def __init__(self, runtime, settings=""):
        self._folder = tempfile.TemporaryDirectory(prefix="grus-agent-")
        file = pathlib.Path(self._folder.name) / "agent.toml"
        file.write_text(settings)
        self._host, self._port = os.openpty()
        tty.setraw(self._port)
        self.process = subprocess.Popen([GRUS, "agent", "--config", file, "--port", os.ttyname(self._port)],
                                        env=ENVIRONMENT | {"XDG_RUNTIME_DIR": runtime}, stderr=subprocess.PIPE, text=True)
        self._lines = os.fdopen(self._host, "r+b", buffering=0)
        self._number = 0
        self.signs_of_life = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self._lines.close()
        os.close(self._port)
        self._folder.cleanup()

    def say(self, text):
        self._lines.write(text)

    def ask(self, command, **more):
        self._number += 1
        self.say(json.dumps({"id": self._number, "command": command, **more}).encode() + b"\n")
        while True:
            line = b""
            while not line.endswith(b"\n"):
                line += self._lines.read(1)
            answer = json.loads(line)
            if answer.get("id") == self._number and "ok" in answer:
                return answer
            self.signs_of_life += "alive" in answer


class AgentTest(TestCase):
    def agent(self, runtime, settings=""):
        return self.enterContext(Agent(runtime, settings))

    def where(self, *subjects):
        return [subject.ask("describe")["at"] for subject in subjects]

    def test_programs_leave_together_and_return(self):
        server = self.server()
        one = self.subject("busy", 2, 1, 1)
        runtime = one.environment["XDG_RUNTIME_DIR"]
        two = self.subject("busy", 2, 1, 1, environment={"XDG_RUNTIME_DIR": runtime})
        agent = self.agent(runtime)
        self.assertEqual(len(agent.ask("hello")["programs"]), 2)
        answer = agent.ask("move", address=server.address)
        self.assertTrue(answer["ok"], answer)
        self.assertEqual(self.where(one, two), [server.address] * 2)
        self.assertEqual({session["pid"] for session in answer["sessions"]}, {one.process.pid, two.process.pid})
        self.assertEqual(len([step for step in answer["steps"] if step["step"] == "switch"]), 2)
        self.assertTrue(agent.ask("return", address=server.address)["ok"])
        self.assertEqual(self.where(one, two), ["local"] * 2)
        self.assertTrue(agent.ask("suspend")["ok"])
        self.assertEqual(self.where(one, two), ["suspended"] * 2)
        self.assertTrue(agent.ask("resume")["ok"])
        self.assertEqual(self.where(one, two), ["local"] * 2)
        for subject in (one, two):
            subject.end()

    def test_only_those_that_left_return(self):
        """Also if the agent was ended when they left, so that all that is known is where they were before."""
        server = self.server()
        one = self.subject("busy", 2, 1, 1)
        runtime = one.environment["XDG_RUNTIME_DIR"]
        resident = self.subject("busy", 2, 1, 1, environment={"XDG_RUNTIME_DIR": runtime})
        self.move(resident, to=server.address)
        agent = self.agent(runtime)
        before = [{"pid": each["pid"], "from": each["at"], "ok": True} for each in agent.ask("hello")["programs"]]
        for left in (before, None):
            if left:
                self.move(one, to=server.address)
            else:
                left = agent.ask("move", address=server.address)["sessions"]
            answer = agent.ask("return", address=server.address, left=left)
            self.assertEqual([each["pid"] for each in answer["sessions"]], [one.process.pid], answer)
            self.assertEqual(self.where(one, resident), ["local", server.address])
        self.assertTrue(agent.ask("return", address=server.address, left=[])["ok"])
        self.assertEqual(self.where(resident), [server.address])
        resident.ask("suspend")
        self.assertEqual(agent.ask("resume", left=[])["sessions"], [])
        self.assertEqual(self.where(resident), ["suspended"])
        self.assertTrue(agent.ask("resume")["ok"])  # nobody knows: all
        for subject in (one, resident):
            subject.end()

    def test_all_stay_if_one_cant_go(self):
        server = self.server()
        one = self.subject("busy", 2, 1, 1)
        runtime = one.environment["XDG_RUNTIME_DIR"]
        scope = self.subject("scope", environment={"XDG_RUNTIME_DIR": runtime})
        agent = self.agent(runtime)
        answer = agent.ask("move", address=server.address)
        self.assertFalse(answer["ok"])
        self.assertIn("program-scope", answer["error"])
        self.assertEqual(self.where(one, scope), ["local"] * 2)
        self.assertFalse(agent.ask("move", address="unix:/nowhere")["ok"])
        self.assertEqual(self.where(one), ["local"])
        one.end()

    def test_a_proxy_without_room(self):
        with Server(GRUS, "unix", None, ENVIRONMENT, ["--memory", "1MiB"]) as server:
            one = self.subject("busy", 2, 1, 1)
            agent = self.agent(one.environment["XDG_RUNTIME_DIR"])
            session, = agent.ask("move", address=server.address)["sessions"]
            self.assertEqual((session["ok"], session["no_room"]), (False, True))
            self.assertEqual(self.where(one), ["local"])
            one.end()

    def test_card(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = (f'device_files = ["{folder}/card*"]\nunload = "rm {folder}/loaded"\n'
                        f'load = ["sleep 1.5", "touch {folder}/loaded"]\nprobe = "test -e {folder}/loaded"\n')
            agent = self.agent(folder, settings)
            pathlib.Path(folder, "loaded").touch()
            pathlib.Path(folder, "card0").touch()
            with open(f"{folder}/card0", encoding="utf-8"):
                answer = agent.ask("unload")
                self.assertRegex(answer["error"], rf"in use by \S+\[{os.getpid()}\]")
            self.assertTrue(pathlib.Path(folder, "loaded").exists())
            self.assertTrue(agent.ask("unload")["ok"])
            self.assertFalse(pathlib.Path(folder, "loaded").exists())
            self.assertRegex(agent.ask("unload")["error"], "`rm .*loaded` failed with exit status 1: .*No such file")
            self.assertTrue(agent.ask("load")["ok"])
            self.assertGreater(agent.signs_of_life, 0)
            self.assertEqual([step["step"] for step in agent.ask("load")["steps"]], ["wait for the card"])  # it is usable

    def test_a_card_that_doesnt_come(self):
        agent = self.agent("/nowhere", 'devices = ["ffff:ffff"]\n')
        self.assertFalse(agent.ask("hello")["has_card"])
        self.assertRegex(agent.ask("load", patience=1)["error"], r"the card \(ffff:ffff\) didn't come")

    def test_a_driver_that_doesnt_come(self):
        agent = self.agent("/nowhere", 'probe = "echo no such module; false"\n')
        self.assertRegex(agent.ask("load", patience=1)["error"], "the card can't be used: `.*` fails: no such module")

    def test_nonsense(self):
        agent = self.agent("/nowhere")
        for nonsense in (b"\n", b"half a li", b"ne\n", b"[1]\n", b"{}\n", b'{"id": "x", "command": 7}\n', b"\xff\xfe\n"):
            agent.say(nonsense)
        self.assertRegex(agent.ask("dance")["error"], "nothing that this version")
        self.assertTrue(agent.ask("hello")["ok"])

    def test_settings(self):
        for text, message in (("prot = 1\n", "agent.toml:1: prot: there is no such setting"),
                              ("port = 1\n", "agent.toml:1: port: it must be a text"),
                              ("load = [\n", "agent.toml:")):
            agent = Agent("/nowhere", text)
            self.assertIn(message, agent.process.communicate(timeout=SECONDS)[1])
            agent.__exit__()


class VmFileTest(unittest.TestCase):
    def vm(self, text, *arguments, **environment):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            return subprocess.run([GRUS, "vm", *arguments, "--config", file.name], text=True, capture_output=True, check=False,
                                  timeout=SECONDS, env={**os.environ, **environment})

    def test_what_is_wrong_with_it(self):
        for text, message in (("a = 1\n", ":1: a: it must be a table"), ("[a]\n", "a: it must have either qmp"),
                              ('[a]\nqmp = "/x"\nlibvirt = "qemu:///system"\n', "either qmp"),
                              ('[a]\nlibvirt = "qemu+ssh://b/system"\n', "a: it must have agent"),
                              ('[a]\nlibvirt = "qemu:///system"\ngpu = "<hostdev/>"\n', "with <alias name='ua-gpu'/>"),
                              ('[a]\nqmp = "/x"\ncard = 1\n', ":3: card: there is no such setting"),
                              ('[a]\nqmp = "/x"\ngpu = { id = "x" }\n', "it must have a driver and an id")):
            done = self.vm(text, "list")
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)

    def test_machines_that_arent_there(self):
        text = '[a]\nqmp = "/nowhere/a"\nproxy = "tcp:a:1"\n[b]\nqmp = "/nowhere/b"\n'
        self.assertRegex(self.vm(text, "list").stdout, r"a +not there")
        done = self.vm(text, "migrate", "a", "--to", "b")
        self.assertEqual((done.returncode, done.stderr), (1, "grus: /nowhere/a: no QEMU listens there\n"))
        self.assertIn("no virtual machine of that name", self.vm(text, "migrate", "a", "--to", "c").stderr)
        self.assertIn("has no proxy", self.vm(text, "migrate", "b", "--to", "a").stderr)

    def test_without_virsh(self):
        done = self.vm('[a]\nlibvirt = "qemu:///system"\n', "list", "--json", PATH="/nowhere")
        self.assertEqual(json.loads(done.stdout)[0]["error"], "`virsh` can't be run: No such file or directory")


class HookTest(unittest.TestCase):
    """What libvirt's hook says of a domain that comes."""

    AGENT = "<channel type='unix'>\n<target type='virtio' name='org.grus.agent.0'/>\n</channel>\n"
    MARK = '<grus:migrating xmlns:grus="urn:grus"/>'

    def hook(self, *parts):
        xml = "<domain>\n" + "".join(parts) + "</domain>\n"
        return subprocess.run([GRUS, "vm", "hook", "web"], text=True, input=xml, capture_output=True, check=False, timeout=SECONDS)

    def test_hook(self):
        card = "<hostdev><alias name='ua-gpu'/></hostdev>"
        port = self.AGENT.replace("agent", "gpu")
        for parts in ([], [card], [self.AGENT]):
            done = self.hook(*parts)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        for parts in ([self.AGENT, card], [self.AGENT, port]):
            done = self.hook(*parts)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("`grus vm migrate web --to …`", done.stderr)
            done = self.hook(f"<metadata>{self.MARK}</metadata>", *parts)
            self.assertEqual((done.returncode, done.stdout), (0, "<domain>\n<metadata></metadata>" + "".join(parts) + "</domain>\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
