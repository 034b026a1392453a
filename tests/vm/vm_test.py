#!/usr/bin/python3 -B
"""`grus vm` and `grus agent`: a guest that uses a card is moved from one QEMU to another while its programs run.

Everything is in a network namespace of its own. PoCL in the guest stands in for the card's OpenCL, virtio-rng for the card. The
proxy, and what the program tells of itself, are at the host's end of the guest's network. Needs root, for both.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import guests
from guests import GRUS, HOST, Failed, Guest, Tap, run

PORT = 7070


class Beats:
    """What programs in guests tell about themselves, with the time at which it came."""

    def __init__(self):
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((HOST, 0))
        self.port = self._socket.getsockname()[1]
        self._seen = {}  # by name: (time, kernels, ticks, longest kernel gap, longest tick gap; both in seconds)
        self._changed = threading.Condition()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        while True:
            name, *numbers = self._socket.recv(500).decode().split()
            kernels, ticks, kernel_gap, tick_gap = map(int, numbers)
            with self._changed:
                self._seen.setdefault(name, []).append((time.time(), kernels, ticks, kernel_gap / 1e6, tick_gap / 1e6))
                self._changed.notify_all()

    def of(self, name, start=0.0, end=float("inf")):
        with self._changed:
            return [one for one in self._seen.get(name, []) if start <= one[0] <= end]

    def kernels(self, name):
        seen = self.of(name)
        return seen[-1][1] if seen else 0

    def wait_for(self, name, kernels, seconds=90):
        """Until it has run so many more of them."""
        with self._changed:
            before = self._seen[name][-1][1] if name in self._seen else 0
            if not self._changed.wait_for(lambda: name in self._seen and self._seen[name][-1][1] >= before + kernels,
                                          seconds):
                raise Failed(f"{name} didn't run {kernels} kernels in {seconds} s")

    def gap(self, name, start, end):
        """The longest time without a kernel, as seen from here."""
        longest, last = 0.0, None
        for when, kernels, *_ in self.of(name, start, end):
            if last is None or kernels != last[1]:
                longest = max(longest, when - last[0] if last else 0.0)
                last = (when, kernels)
        return longest


def step_times(outcome):
    """By name of a step of the host's or of QEMU's, when it began and ended."""
    times = {}
    for step in outcome["steps"]:
        if step["side"] in ("host", "QEMU"):
            start = outcome["began"] + step["start"]
            times.setdefault(step["step"], (start, start + step["seconds"]))
    return times


class VmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        guests.prepare()
        cls.beats = Beats()
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="grus-vm-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        keys = cls.folder / "keys"
        run(GRUS, "keys", keys, "--host", HOST)
        guests.make_start(cls.folder / "start", keys)
        cls.keys = keys

    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        self.proxy = None
        self.machines = {}
        self.start_proxy()
        self.addCleanup(self.stop_proxy)

    def start_proxy(self, *options):
        environment = {**os.environ, "POCL_CACHE_DIR": str(guests.CACHE / "pocl-of-proxy")}
        self.proxy = subprocess.Popen([GRUS, "serve", "--listen", f"tcp:{HOST}:{PORT}", "--keys", self.keys,
                                       "--shared-cache", "yes", "--vendors", "/etc/OpenCL/vendors/pocl.icd", *options], env=environment,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.proxy.stdout.readline()

    def stop_proxy(self):
        if self.proxy.poll() is None:
            self.proxy.terminate()
        self.proxy.wait()
        self.proxy.stdout.close()

    def guest(self, name, **options):
        guest = Guest(self.place, name, self.folder / "start", tap=guests.make_tap(), **options)
        self.machines[name] = guest
        self.addCleanup(guest.close)
        guest.status()  # it listens
        _ = guest.shell  # what it says while nobody is connected is lost
        self.write_file()
        return guest

    def write_file(self):
        proxy = f"tcp:{HOST}:{PORT}"
        (self.place / "vms.toml").write_text("".join(one.table(proxy=proxy) for one in self.machines.values()))

    def start_program(self, guest, name, *options):
        guest.shell.run(f"grus run --name {name} {' '.join(options)} -- beats {name} {HOST} {self.beats.port} > /run/{name}.out 2>&1 < /dev/null & "
                        f"echo $! > /run/{name}.pid")
        self.beats.wait_for(name, 3)

    def end_program(self, guest, name):
        """What it says at its end; it checks every word of its memory."""
        guest.shell.run(f"kill -TERM $(cat /run/{name}.pid)")
        return guest.shell.run(f"while kill -0 $(cat /run/{name}.pid) 2>/dev/null; do usleep 50000; done; cat /run/{name}.out",
                               90).strip()

    def vm(self, *arguments, fails=False):
        done = subprocess.run([GRUS, "vm", *map(str, arguments), "--config", self.place / "vms.toml", "--json"], text=True,
                              capture_output=True, check=False, timeout=150)
        self.assertEqual(done.returncode, 1 if fails else 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def two_guests(self, *names):
        """One that runs, with programs, and one that waits."""
        a = self.guest("a")
        b = self.guest("b", waits=True)
        a.shell.wait_until_ready(60)
        for name in names:
            self.start_program(a, name)
        return a, b

    def expect_right(self, guest, name):
        self.assertRegex(self.end_program(guest, name), r"^right: \d+ kernels$")

    def expect_went_on(self, outcome, names):
        """That programs ran kernels in all phases, and were never without for long."""
        times = step_times(outcome)
        for name in names:
            self.beats.wait_for(name, 3)
            for step in ("programs leave for the proxy", "QEMU's migration"):
                self.assertGreater(self.kernels_in(name, times[step]), 0, f"{name} ran no kernel during: {step}")
            self.assertLess(self.beats.gap(name, outcome["began"], self.end_of(outcome)),
                            1 + outcome["migration"]["downtime_ms"] / 1e3)

    def end_of(self, outcome):
        return outcome["began"] + max(step["start"] + step["seconds"] for step in outcome["steps"])

    def kernels_in(self, name, times):
        seen = self.beats.of(name, *times)
        return seen[-1][1] - seen[0][1] if seen else 0

    def report(self, what, outcome, names):
        """The measures of the papers, for people."""
        end = self.end_of(outcome)
        times = step_times(outcome)
        print(f"\n{what}: {end - outcome['began']:.2f} s in all; QEMU stopped the guest for "
              f"{outcome['migration']['downtime_ms']} ms and sent {outcome['migration']['ram_bytes'] >> 20} MiB in "
              f"{outcome['migration']['total_ms'] / 1e3:.2f} s")
        for step in outcome["steps"]:
            print(f"  {step['start']:7.3f} {step['seconds']:7.3f} s  {step['side']:12} {step['step']}")
        for name in names:
            beats = self.beats.of(name, outcome["began"], end)
            ticks = [b[0] - a[0] for a, b in zip(beats, beats[1:])]
            print(f"  {name}: longest gap between kernels {1e3 * self.beats.gap(name, outcome['began'] - 1, end + 1):.0f} ms seen "
                  f"from outside, {1e3 * max(one[3] for one in beats):.0f} ms by the guest's clock; of the 1 ms clock "
                  f"{1e3 * max(one[4] for one in beats):.0f} ms by the guest's clock, {1e3 * max(ticks):.0f} ms seen from outside")
            print("  " + ", ".join(f"{step}: {self.kernels_in(name, times[step])} kernels" for step in times))


class MigrationTest(VmTest):
    def test_live_there_and_back(self):
        a, b = self.two_guests("one", "two")
        outcome = self.vm("migrate", "a", "--to", "b", "--trace", self.place / "trace")
        self.report("live, two programs", outcome, ("one", "two"))
        self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("b", "card"))
        self.assertEqual((a.status(), b.status(), b.has_card()), ("postmigrate", "running", True))
        self.expect_went_on(outcome, ("one", "two"))
        self.assertTrue(json.loads((self.place / "trace").read_text())["traceEvents"])
        b.shell.run("grep -q virtio_rng /sys/class/misc/hw_random/rng_available")
        listed = {row["name"]: row for row in self.vm("list")}
        self.assertEqual([one["at"] for one in listed["b"]["programs"]], ["local", "local"])
        self.assertEqual(listed["a"]["status"], "postmigrate")

        a.close()  # and back, to a new QEMU
        c = self.guest("c", waits=True)
        self.stop_proxy()
        self.start_proxy("--memory", "4KiB")
        outcome = self.vm("migrate", "b", "--to", c.incoming, "--live-only", fails=True)
        self.assertRegex(outcome["error"], "MAX_MEM_ALLOC_SIZE: the program was told .*; the guest runs on at b, as before")
        outcome = self.vm("migrate", "b", "--to", c.incoming)
        self.assertIn("in the guest: ", outcome["fell_back"])
        self.report("stop and copy, two programs", outcome, ("one", "two"))
        self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("c", "card"))
        for name in ("one", "two"):
            self.beats.wait_for(name, 3)
            self.expect_right(c, name)


class HostsDeviceTest(VmTest):
    def start_server(self):
        server = f"unix:{self.place}/serve.sock"
        serve = self.start(GRUS, "serve", "--listen", server, "--vendors", "/etc/OpenCL/vendors/pocl.icd")
        serve.stdout.readline()
        return server

    def start_relay(self, guest):
        guest.shell.wait_until_ready(60)
        guest.shell.run("grus relay --port /dev/virtio-ports/org.grus.gpu.0 > /run/relay.out 2>&1 < /dev/null & true")

    def sessions_at(self, server):
        return json.loads(run(GRUS, "ps", "--gpu", server, "--json", "--interval", "0"))[-1]["sessions"]

    def test_through_shared_memory(self):
        """Programs of two guests on the host's device, at once, each with a slice of its guest's memory; then one is moved."""
        server = self.start_server()
        a = self.guest("a", area="master=on")
        b = self.guest("b", area="master=off", number=3)
        taps = {}
        for guest in (a, b):
            taps[guest] = Tap(guest.folder / "gpus.sock")
            self.addCleanup(taps[guest].close)
            self.start(GRUS, "relay", "--port", f"unix:{taps[guest].path}", "--to", server, "--area", guest.area)
        names = {"six": a, "seven": a, "eight": b}
        for guest in (a, b):
            self.start_relay(guest)
        for name, guest in names.items():
            self.start_program(guest, name, "--gpu", "ivshmem:")
            if name == "six":
                self.expect_no_notifications(name, taps[guest])
        self.assertEqual(len(self.sessions_at(server)), 3)
        self.expect_right(b, "eight")
        c = self.guest("c", waits=True, area="master=on")
        self.assertRegex(self.vm("migrate", "b", "--to", "c", fails=True)["error"], "b has a shared-memory device .* master=on")
        # The memory that arrives overwrites what its relay has.
        self.start(GRUS, "relay", "--port", f"unix:{c.folder}/gpus.sock", "--to", server, "--area", c.area)
        outcome = self.vm("migrate", "a", "--to", "c")
        self.report("live, shared memory", outcome, ("six", "seven"))
        self.expect_went_on(outcome, ("six", "seven"))
        programs = next(row for row in self.vm("list") if row["name"] == "c")["programs"]
        self.assertEqual([one["at"] for one in programs], ["ivshmem:", "ivshmem:"])
        for name in ("six", "seven"):
            self.expect_right(c, name)
            self.assertNotIn("no shared memory", c.shell.run(f"cat /run/{name}.out"))

    def expect_no_notifications(self, name, tap):
        """Of launches, each waited for, in steady state. But who is kept from its core for long sleeps after all."""
        launches, frames = self.beats.kernels(name), dict(tap.frames)
        self.beats.wait_for(name, 1000)
        launches = self.beats.kernels(name) - launches
        kicks, interrupts = (tap.frames[way] - frames[way] for way in ("to host", "to guest"))
        print(f"\n{launches} launches through shared memory: {kicks} kicks, {interrupts} interrupts")
        self.assertLess(kicks + interrupts, launches / 100)

    def test_through_virtio_serial(self):
        """Two programs of a guest on the host's device, through one port; then the guest is moved."""
        a = self.guest("a")
        b = self.guest("b", waits=True)
        server = self.start_server()
        for guest in (a, b):
            self.start(GRUS, "relay", "--port", f"unix:{guest.folder}/gpus.sock", "--to", server)
        self.start_relay(a)
        self.assertRegex(a.shell.run("grus run --gpu ivshmem: -- beats none 127.0.0.1 9 2>&1 || true"),
                         "this machine has no shared-memory device")
        for name in ("four", "five"):
            self.start_program(a, name, "--gpu", "virtio-serial:")
        self.assertEqual(len(self.sessions_at(server)), 2)
        self.vm("migrate", "a", "--to", "b")
        for name in ("four", "five"):
            self.beats.wait_for(name, 3)
        programs = next(row for row in self.vm("list") if row["name"] == "b")["programs"]
        self.assertEqual({one["at"].partition(":")[0] for one in programs}, {"virtio-serial"})
        for name in ("four", "five"):
            self.expect_right(b, name)

    def test_through_vsock(self):
        """A server and a program in one guest: the host may have no vhost-vsock."""
        a = self.guest("a")
        a.shell.wait_until_ready(60)
        modules = ("vsock", "vmw_vsock_virtio_transport_common", "vsock_loopback")
        a.shell.run(" && ".join(f"insmod /opt/modules/{name}.ko" for name in modules))
        a.shell.run("grus serve --listen vsock:any:7070 --shared-cache yes --vendors /etc/OpenCL/vendors/pocl.icd > /run/serve.out 2>&1 < /dev/null & true")
        a.shell.run("until grep -q listening /run/serve.out; do usleep 50000; done")
        self.start_program(a, "nine", "--gpu", "vsock:local:7070")
        programs = next(row for row in self.vm("list") if row["name"] == "a")["programs"]
        self.assertEqual([one["at"] for one in programs], ["vsock:local:7070"])
        self.expect_right(a, "nine")

    def start(self, *command):
        child = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.terminate)
        return child


class FailuresTest(VmTest):
    """Whatever fails, the guest runs, with something to compute on, and the message says where."""

    def expect_as_before(self, guest, outcome, why):
        self.assertRegex(outcome["error"], why)
        self.assertRegex(outcome["error"], f"the guest runs (on )?at {guest.name}")
        self.assertEqual((outcome["ok"], outcome["runs_at"]), (False, guest.name))
        self.assertEqual((guest.status(), guest.has_card()), ("running", True))
        self.assertEqual([one["at"] for one in self.programs_of(guest)], ["local"])
        self.beats.wait_for("one", 3)

    def programs_of(self, guest):
        return next(row for row in self.vm("list") if row["name"] == guest.name)["programs"]

    def under_way(self, source, do, *arguments, fails=True):
        """Migrates, and does something while QEMU is about it."""
        source.monitor.ask("migrate-set-parameters", **{"max-bandwidth": 2 << 20})
        command = [GRUS, "vm", "migrate", source.name, *arguments, "--config", self.place / "vms.toml", "--json"]
        with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as child:
            while source.monitor.ask("query-migrate").get("status") != "active":
                if child.poll() is not None:
                    self.fail(f"it ended before QEMU's migration: {child.communicate()}")
                time.sleep(0.02)
            do(child)
            source.monitor.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 30})
            output, errors = child.communicate(timeout=120)
            self.assertEqual(child.returncode, 1 if fails else 0, output + errors)
            return json.loads(output)

    def test_failures(self):
        a, b = self.two_guests("one")

        with self.subTest("the proxy isn't there"):
            outcome = self.vm("migrate", "a", "--to", "b", "--proxy", f"tcp:{HOST}:1", fails=True)
            self.expect_as_before(a, outcome, f"{HOST}:1")

        with self.subTest("somebody else uses the card"):
            a.shell.run("sleep 1000 < /dev/hwrng & echo $! > /run/user.pid")
            outcome = self.vm("migrate", "a", "--to", "b", fails=True)
            self.expect_as_before(a, outcome, r"in use by sleep\[\d+\]")
            a.shell.run("kill $(cat /run/user.pid)")

        with self.subTest("the destination doesn't wait"):
            self.assertRegex(self.vm("migrate", "b", "--to", "a", fails=True)["error"], "b isn't running")

        with self.subTest("no agent"):
            a.shell.run("touch /run/no-agent; kill $(cat /run/agent.pid)")
            outcome = self.vm("migrate", "a", "--to", "b", fails=True)
            self.assertRegex(outcome["error"], "the guest's agent doesn't answer")
            a.shell.run("rm /run/no-agent")
            self.expect_as_before(a, {**outcome, "error": outcome["error"] + " the guest runs at a"}, "agent")

        with self.subTest("the agent is killed while programs leave"):
            self.proxy.send_signal(signal.SIGSTOP)  # so that they never get there
            child = subprocess.Popen([GRUS, "vm", "migrate", "a", "--to", "b", "--config", self.place / "vms.toml", "--json"],
                                     stdout=subprocess.PIPE, text=True)
            a.shell.run("until grep -q ':1B9E 01 ' /proc/net/tcp; do usleep 20000; done; kill $(cat /run/agent.pid)")
            outcome = json.loads(child.communicate(timeout=120)[0])
            self.proxy.send_signal(signal.SIGCONT)
            self.expect_as_before(a, outcome, "agent doesn't answer")
            # What the agent had begun is cancelled once the proxy answers; nothing else can begin before.
            a.shell.run(f"until grus move one --to tcp:{HOST}:{PORT} --dry-run > /dev/null 2>&1; do usleep 100000; done", 30)

        with self.subTest("the destination's QEMU is killed"):
            outcome = self.under_way(a, lambda _: b.close(), "--to", "b")
            self.expect_as_before(a, outcome, "QEMU's migration failed")

        with self.subTest("cancelled"):
            c = self.guest("c", waits=True)
            outcome = self.under_way(a, lambda child: child.send_signal(signal.SIGINT), "--to", "c")
            self.expect_as_before(a, outcome, "cancelled")

        with self.subTest("the destination has no card"):
            d = self.guest("d", waits=True)
            d.card["bus"] = "nowhere"
            self.write_file()
            outcome = self.vm("migrate", "a", "--to", "d", fails=True)
            self.assertRegex(outcome["error"], f"the guest runs at d, without its card: .*nowhere.* go on at tcp:{HOST}")
            self.assertEqual((d.status(), d.has_card(), outcome["gpu"]), ("running", False, "proxy"))
            self.assertEqual([one["at"] for one in self.programs_of(d)], [f"tcp:{HOST}:{PORT}"])
            self.beats.wait_for("one", 3)
            d.card["bus"] = "place0"
            self.write_file()
            self.vm("attach-gpu", "d")
            self.assertEqual(([one["at"] for one in self.programs_of(d)], d.has_card()), (["local"], True))
            self.beats.wait_for("one", 3)

        with self.subTest("the card goes and comes"):
            self.vm("detach-gpu", "d")
            self.assertFalse(d.has_card())
            self.beats.wait_for("one", 3)
            self.vm("attach-gpu", "d")
            self.assertTrue(d.has_card())

        with self.subTest("the proxy is killed"):
            e = self.guest("e", waits=True)
            self.start_program(d, "two")
            outcome = self.under_way(d, lambda _: self.proxy.kill(), "--to", "e", fails=False)
            self.assertEqual((outcome["runs_at"], outcome["gpu"], len(outcome["ended"])), ("e", "card", 2))
            self.assertEqual((e.status(), e.has_card()), ("running", True))
            e.shell.run("rmmod virtio_rng && insmod /opt/modules/virtio-rng.ko")

    def test_device_del_is_never_answered(self):
        a = self.guest("a", append="acpiphp.disable=1")
        self.guest("b", waits=True)
        a.shell.wait_until_ready(60)
        self.start_program(a, "three")
        outcome = self.vm("migrate", "a", "--to", "b", "--unplug", 2, fails=True)
        self.assertRegex(outcome["error"], "didn't let go of the card within 2 s; the guest runs at a, with its card and its programs")
        self.assertEqual((a.status(), a.has_card()), ("running", True))
        self.beats.wait_for("three", 3)
        self.expect_right(a, "three")


def main():
    """Runs the tests of the program, in a network namespace."""
    guests.enter_network()
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
