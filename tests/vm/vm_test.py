#!/usr/bin/python3 -B
"""`grus vm` and `grus agent`: a guest that uses a card is moved from one QEMU to another while its programs run.

Everything is in a network namespace of its own. PoCL in the guest stands in for the card's OpenCL, virtio-rng for the card. The
proxy, and what the program tells of itself, are at the host's end of the guest's network. Needs root, for both.
"""

import json
import os
import pathlib
import shutil
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
        """The longest time without a kernel, as seen from here: when it began and ended. One that begins before the end counts."""
        longest, last = (start, start), None
        for when, kernels, *_ in self.of(name, start):
            if last is None or kernels != last[1]:
                if last:
                    longest = max(longest, (last[0], when), key=lambda one: one[1] - one[0])
                last = (when, kernels)
                if when > end:
                    break
        return longest

    def silence(self, name, start, end):
        """The longest time without a tick of its clock, which is when its guest stood still."""
        times = [start, *(one[0] for one in self.of(name, start, end)), end]
        return max(b - a for a, b in zip(times, times[1:]))


def step_times(outcome):
    """By name of a step of the host's or of QEMU's, when it began and ended."""
    times = {}
    for step in outcome["steps"]:
        if step["side"] in ("host", "QEMU"):
            start = outcome["began"] + step["start"]
            times.setdefault(step["step"], (start, start + step["seconds"]))
    return times


def common(one, other):
    """Seconds that two spans of time have in common."""
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


class VmTest(unittest.TestCase):
    AGENT = guests.AGENT_TOML  # its settings

    @classmethod
    def setUpClass(cls):
        guests.prepare()
        cls.beats = Beats()
        cls.others = guests.Others()
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="grus-vm-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        keys = cls.folder / "keys"
        run(GRUS, "keys", keys, "--host", HOST)
        guests.make_start(cls.folder / "start", keys, agent=cls.AGENT)
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

    def start_vm(self, *arguments):
        child = subprocess.Popen([GRUS, "vm", *map(str, arguments), "--config", self.place / "vms.toml", "--json"], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def outcome_of(self, child, fails=False):
        """None: it may or may not."""
        output, errors = child.communicate(timeout=300)
        if fails is not None:
            self.assertEqual(child.returncode, 1 if fails else 0, output + errors)
        return json.loads(output)

    def vm(self, *arguments, fails=False):
        return self.outcome_of(self.start_vm(*arguments), fails)

    def programs_of(self, guest):
        return next(row for row in self.vm("list") if row["name"] == guest.name)["programs"]

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

    # Those that are short count together.
    PHASES = (("programs leave for the proxy",), ("QEMU's migration",),
              ("the guest unloads the driver", "device_del", "device_add", "the guest loads the driver"), ("programs return",))

    def expect_went_on(self, outcome, names):
        """That programs ran kernels in all phases, and were never without for a second of a machine that has nothing else to do."""
        times = step_times(outcome)
        for name in names:
            self.beats.wait_for(name, 3)
            for phase in self.PHASES:
                spans = [times[step] for step in phase if step in times]
                if spans:
                    self.assertGreater(sum(self.kernels_in(name, span) for span in spans), 0, f"{name} ran no kernel during: {phase}")
            gap = self.beats.gap(name, outcome["began"], self.end_of(outcome))
            self.assertLess(gap[1] - gap[0] - self.stopped_in(gap, name, times), 1,
                            f"{name} was without a kernel during: {self.steps_in(gap, outcome)}")

    def stopped_in(self, gap, name, times):
        """For how long QEMU had the guest stand still then: for its last copy, and under emulation also at its beginning."""
        travel = times["QEMU's migration"]
        span = (max(gap[0], travel[0]), min(gap[1], travel[1]))
        return self.beats.silence(name, *span) if span[0] < span[1] else 0.0

    def steps_in(self, gap, outcome):
        """What was going on in that span of time, and for how long of it."""
        began = outcome["began"]
        steps = [(step["side"], step["step"], began + step["start"], began + step["start"] + step["seconds"])
                 for step in outcome["steps"]]
        # QEMU tells how long it stopped the guest at its end, and not when that began.
        end = max((end for side, _, _, end in steps if side == "QEMU"), default=0.0)
        steps.append(("QEMU", "its stop", end - outcome["migration"]["downtime_ms"] / 1e3, end))
        return ", ".join(f"{side}: {name} {1e3 * common(gap, (start, end)):.0f} ms" for side, name, start, end in steps
                         if common(gap, (start, end)) >= 1e-3)

    def end_of(self, outcome):
        return outcome["began"] + max(step["start"] + step["seconds"] for step in outcome["steps"])

    def kernels_in(self, name, times):
        seen = self.beats.of(name, *times)
        return seen[-1][1] - seen[0][1] if seen else 0

    def report(self, what, outcome, names):
        """The measures of the papers, for people."""
        end = self.end_of(outcome)
        times = step_times(outcome)
        print(f"\n{what}: {end - outcome['began']:.2f} s in all, with {100 * self.others.leave(outcome['began'], end):.0f} % of the "
              f"cores; QEMU stopped the guest for {outcome['migration']['downtime_ms']} ms and sent {outcome['migration']['ram_bytes'] >> 20} MiB in "
              f"{outcome['migration']['total_ms'] / 1e3:.2f} s")
        for step in outcome["steps"]:
            print(f"  {step['start']:7.3f} {step['seconds']:7.3f} s  {step['side']:12} {step['step']}")
        for name in names:
            beats = self.beats.of(name, outcome["began"], end)
            ticks = [b[0] - a[0] for a, b in zip(beats, beats[1:])]
            gap = self.beats.gap(name, outcome["began"], end)
            print(f"  {name}: longest gap between kernels {1e3 * (gap[1] - gap[0]):.0f} ms seen "
                  f"from outside, {1e3 * max(one[3] for one in beats):.0f} ms by the guest's clock; of the 1 ms clock "
                  f"{1e3 * max(one[4] for one in beats):.0f} ms by the guest's clock, {1e3 * max(ticks):.0f} ms seen from outside")
            print(f"  in that gap: {self.steps_in(gap, outcome)}; QEMU had the guest stand still for "
                  f"{1e3 * self.stopped_in(gap, name, times):.0f} ms, and others left {100 * self.others.leave(*gap):.0f} % of the cores")
            print("  " + ", ".join(f"{step}: {self.kernels_in(name, times[step])} kernels" for step in times))


class MigrationTest(VmTest):
    def test_live_there_and_back(self):
        a, b = self.two_guests("one", "two")
        outcome = self.vm("migrate", "a", "--to", "b", "--trace", self.place / "trace")
        self.report("live, two programs", outcome, ("one", "two"))
        self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("b", "card"))
        self.assertEqual((a.status(), b.status(), b.has_card()), ("postmigrate", "running", True))
        self.expect_went_on(outcome, ("one", "two"))
        self.expect_trace(json.loads((self.place / "trace").read_text())["traceEvents"])
        b.shell.run("grep -q virtio_rng /sys/class/misc/hw_random/rng_available")
        listed = {row["name"]: row for row in self.vm("list")}
        self.assertEqual([one["at"] for one in listed["b"]["programs"]], ["local", "local"])
        self.assertEqual(listed["a"]["status"], "postmigrate")

        a.close()  # and back, to a new QEMU
        c = self.guest("c", waits=True)
        outcome = self.vm("migrate", "b", "--to", c.incoming)
        self.report("live, back again", outcome, ("one", "two"))
        self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("c", "card"))
        self.assertNotIn("fell_back", outcome)
        self.expect_went_on(outcome, ("one", "two"))
        for name in ("one", "two"):
            self.expect_right(c, name)

    def expect_trace(self, events):
        """That every side is in it, with its own steps."""
        sides = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        steps = {side: [event["name"] for event in events if event["ph"] == "X" and sides[event["pid"]] == side]
                 for side in sides.values()}
        self.assertEqual([step for step in steps.pop("host") if step != "greet the agent"],
                         ["programs leave for the proxy", "the guest unloads the driver", "device_del", "QEMU's migration", "device_add",
                          "the guest loads the driver", "programs return"])
        self.assertEqual(steps.pop("QEMU")[-1], "active")
        self.assertEqual(steps.pop("guest"), ["move", "rmmod virtio_rng", "wait for the card", "insmod /opt/modules/virtio-rng.ko",
                                              "wait for its driver", "return"])
        self.assertEqual([side.partition("[")[0] for side in steps], ["beats", "beats"])
        for its_steps in steps.values():
            for step in ("plan", "first copy", "last copy", "switch"):
                self.assertEqual(its_steps.count(step), 2, its_steps)

    def test_stop_and_copy(self):
        """Since it was asked for; and since the proxy has no room."""
        a, b = self.two_guests("one", "two")
        outcome = self.vm("migrate", "a", "--to", "b", "--stop-and-copy")
        self.report("stop and copy, two programs", outcome, ("one", "two"))
        self.assertEqual((outcome["runs_at"], outcome["gpu"], a.status(), b.has_card()), ("b", "card", "postmigrate", True))
        self.assertNotIn("fell_back", outcome)
        self.assertEqual([one["at"] for one in self.programs_of(b)], ["local", "local"])
        for name in ("one", "two"):
            self.beats.wait_for(name, 3)

        c = self.guest("c", waits=True)
        self.stop_proxy()
        self.start_proxy("--memory", "4KiB")
        outcome = self.vm("migrate", "b", "--to", "c", "--live-only", fails=True)
        self.assertRegex(outcome["error"], "MAX_MEM_ALLOC_SIZE: the program was told .*; the guest runs on at b, as before")
        outcome = self.vm("migrate", "b", "--to", "c")
        self.assertIn("in the guest: ", outcome["fell_back"])
        self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("c", "card"))
        for name in ("one", "two"):
            self.beats.wait_for(name, 3)
            self.expect_right(c, name)

    def test_two_guests_at_once(self):
        """Through the same proxy."""
        names = {"ten": self.guest("a"), "eleven": self.guest("b", number=3)}
        there = {"ten": self.guest("c", waits=True), "eleven": self.guest("d", waits=True, number=3)}
        for name, guest in names.items():
            guest.shell.wait_until_ready(60)
            self.start_program(guest, name)
        children = {name: self.start_vm("migrate", guest.name, "--to", there[name].name) for name, guest in names.items()}
        outcomes = {name: self.outcome_of(child) for name, child in children.items()}
        self.assertGreater(common(*[(times["programs leave for the proxy"][0], times["programs return"][1])
                                    for times in map(step_times, outcomes.values())]), 0)
        for name, outcome in outcomes.items():
            self.assertEqual((outcome["runs_at"], outcome["gpu"]), (there[name].name, "card"))
            self.beats.wait_for(name, 3)
            self.assertGreater(self.kernels_in(name, step_times(outcome)["QEMU's migration"]), 0)
            self.expect_right(there[name], name)


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
        programs = self.programs_of(c)
        self.assertEqual([one["at"] for one in programs], ["ivshmem:", "ivshmem:"])
        for name in ("six", "seven"):
            self.expect_right(c, name)
            self.assertNotIn("no shared memory", c.shell.run(f"cat /run/{name}.out"))

    def expect_no_notifications(self, name, tap):
        """Of launches, each waited for, in steady state. But who is kept from its core for long sleeps after all."""
        for _ in range(10):
            launches, frames = self.beats.kernels(name), dict(tap.frames)
            self.beats.wait_for(name, 1000)
            launches = self.beats.kernels(name) - launches
            kicks, interrupts = (tap.frames[way] - frames[way] for way in ("to host", "to guest"))
            print(f"\n{launches} launches through shared memory: {kicks} kicks, {interrupts} interrupts")
            if kicks + interrupts == 0:
                return
        self.fail("there was a notification in each thousand of launches")

    def test_through_virtio_serial(self):
        """Two programs of a guest on the host's device, through one port; then the guest, which has no card, is moved."""
        a = self.guest("a", has_card=False)
        b = self.guest("b", has_card=False, waits=True)
        server = self.start_server()
        self.start(GRUS, "relay", "--port", f"unix:{a.folder}/gpus.sock", "--to", server)
        self.start_relay(a)
        self.assertRegex(a.shell.run("grus run --gpu ivshmem: -- beats none 127.0.0.1 9 2>&1 || true"),
                         "this machine has no shared-memory device")
        for name in ("four", "five"):
            self.start_program(a, name, "--gpu", "virtio-serial:")
        self.assertEqual(len(self.sessions_at(server)), 2)
        with self.subTest("nobody is at the destination's port"):
            outcome = self.vm("migrate", "a", "--to", "b", fails=True)
            self.assertRegex(outcome["error"], "the guest runs at b, with the host's GPU, but not all programs came back: .*beats")
            self.assertEqual((outcome["runs_at"], outcome["gpu"], b.status()), ("b", "host", "running"))
            self.assertEqual({one["at"] for one in self.programs_of(b)}, {f"tcp:{HOST}:{PORT}"})
            for name in ("four", "five"):
                self.beats.wait_for(name, 3)
            self.start(GRUS, "relay", "--port", f"unix:{b.folder}/gpus.sock", "--to", server)
            for name in ("four", "five"):  # what the agent had begun may be under way until the relay answers
                b.shell.run(f"until grus move {name} --to virtio-serial: > /dev/null 2>&1; do usleep 100000; done", 120)

        c = self.guest("c", has_card=False, waits=True)
        self.start(GRUS, "relay", "--port", f"unix:{c.folder}/gpus.sock", "--to", server)
        outcome = self.vm("migrate", "b", "--to", "c")
        self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("c", "host"))
        self.expect_went_on(outcome, ("four", "five"))
        self.assertEqual({one["at"].partition(":")[0] for one in self.programs_of(c)}, {"virtio-serial"})
        for name in ("four", "five"):
            self.expect_right(c, name)

    def test_through_vsock(self):
        """A server and a program in one guest: the host may have no vhost-vsock."""
        a = self.guest("a")
        a.shell.wait_until_ready(60)
        modules = ("vsock", "vmw_vsock_virtio_transport_common", "vsock_loopback")
        a.shell.run(" && ".join(f"insmod /opt/modules/{name}.ko" for name in modules))
        a.shell.run("grus serve --listen vsock:any:7070 --shared-cache yes --vendors /etc/OpenCL/vendors/pocl.icd > /run/serve.out 2>&1 < /dev/null & true")
        a.shell.run("until grep -q listening /run/serve.out; do usleep 50000; done")
        self.start_program(a, "nine", "--gpu", "vsock:local:7070")
        programs = self.programs_of(a)
        self.assertEqual([one["at"] for one in programs], ["vsock:local:7070"])
        self.expect_right(a, "nine")

    def start(self, *command):
        child = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.terminate)
        return child


def main():
    """Runs the tests of the program, in a network namespace."""
    guests.enter_network()
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
