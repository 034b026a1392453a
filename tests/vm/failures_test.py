#!/usr/bin/python3 -B
"""`grus vm migrate` when something fails, at each of its steps: whatever it is, the guest runs, with something to compute on, and the
message says where."""

import signal
import time

from guests import AGENT_TOML, HOST
from vm_test import PORT, VmTest, main

# Before it unloads and loads the driver, the agent does what a test has left there.
AGENT = AGENT_TOML.replace('["rmmod', '["test ! -e /run/at-unload || . /run/at-unload", "rmmod').replace(
    '["insmod', '["test ! -e /run/at-load || . /run/at-load", "insmod')
KILL_AGENT = "kill -9 $(cat /run/agent.pid)"


class FailuresTest(VmTest):
    AGENT = AGENT

    def expect_as_before(self, guest, outcome, why):
        self.assertRegex(outcome["error"], why)
        self.assertRegex(outcome["error"], f"the guest runs (on )?at {guest.name}")
        self.assertEqual((outcome["ok"], outcome["runs_at"]), (False, guest.name))
        self.assertEqual((guest.status(), guest.has_card()), ("running", True))
        self.assertEqual([one["at"] for one in self.programs_of(guest)], ["local"])
        self.beats.wait_for("one", 3)

    def under_way(self, source, do, *arguments, fails=True):
        """Migrates, and does something while QEMU is about it."""
        source.monitor.ask("migrate-set-parameters", **{"max-bandwidth": 2 << 20})
        child = self.start_vm("migrate", source.name, *arguments)
        self.wait_for(child, lambda: source.monitor.ask("query-migrate").get("status") == "active")
        do(child)
        source.monitor.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 30})
        return self.outcome_of(child, fails)

    def wait_for(self, child, is_so):
        while not is_so():
            if child.poll() is not None:
                self.fail(f"it ended before: {child.communicate()}")
            time.sleep(0.02)

    def at_return(self, source, destination, do, fails=False):
        """Migrates, and does something while programs return, which they can't: the proxy stands still."""
        source.shell.run("echo 'rm /run/at-load; touch /run/loading; while [ -e /run/held ]; do usleep 20000; done' > /run/at-load; "
                         "rm -f /run/loading; touch /run/held; before=$(grep -c '\"return\"' /run/agent.out); true")
        child = self.start_vm("migrate", source.name, "--to", destination.name)
        self.wait_for(child, lambda: destination.status() == "running")
        destination.shell.run("until [ -e /run/loading ]; do usleep 20000; done", 120)
        self.proxy.send_signal(signal.SIGSTOP)
        destination.shell.run("rm /run/held; until [ $(grep -c '\"return\"' /run/agent.out) -gt $before ]; do usleep 20000; done", 120)
        do()
        self.proxy.send_signal(signal.SIGCONT)
        return self.outcome_of(child, fails)

    def while_programs_leave(self, source, do):
        """Migrates, and does something before they are there, where they never get: the proxy stands still."""
        self.proxy.send_signal(signal.SIGSTOP)
        child = self.start_vm("migrate", source.name, "--to", "b")
        source.shell.run("until grep -q ':1B9E 01 ' /proc/net/tcp; do usleep 20000; done", 120)
        do()
        return child

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
            child = self.while_programs_leave(a, lambda: a.shell.run(KILL_AGENT))
            outcome = self.outcome_of(child, fails=True)
            self.proxy.send_signal(signal.SIGCONT)
            self.expect_as_before(a, outcome, "agent doesn't answer")
            self.assertNotIn("ended", outcome)
            # What the agent had begun is cancelled once the proxy answers; nothing else can begin before.
            a.shell.run(f"until grus move one --to tcp:{HOST}:{PORT} --dry-run > /dev/null 2>&1; do usleep 100000; done", 30)

        with self.subTest("the proxy is killed while programs leave"):
            outcome = self.outcome_of(self.while_programs_leave(a, self.proxy.kill), fails=True)
            self.expect_as_before(a, outcome, HOST)
            self.stop_proxy()
            self.start_proxy()

        with self.subTest("the agent is killed while it unloads the driver"):
            a.shell.run("echo 'rm /run/at-unload; kill -9 $PPID' > /run/at-unload")
            outcome = self.vm("migrate", "a", "--to", "b", fails=True)
            self.expect_as_before(a, outcome, "agent doesn't answer")

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

    def expect_arrived(self, guest, outcome):
        self.assertEqual((outcome["runs_at"], outcome["gpu"]), (guest.name, "card"))
        self.assertEqual((guest.status(), guest.has_card()), ("running", True))
        self.assertEqual([one["at"] for one in self.programs_of(guest)], ["local"])
        self.beats.wait_for("one", 3)

    def test_failures_behind_the_point_of_no_return(self):
        """The agent that is started in place of one that was killed goes on."""
        a, b = self.two_guests("one")
        with self.subTest("the agent is killed while QEMU migrates"):
            outcome = self.under_way(a, lambda _: a.shell.run(KILL_AGENT), "--to", "b", fails=False)
            self.expect_arrived(b, outcome)
            a.close()

        with self.subTest("while it loads the driver"):
            c = self.guest("c", waits=True)
            b.shell.run("echo 'rm /run/at-load; kill -9 $PPID' > /run/at-load")
            self.expect_arrived(c, self.vm("migrate", "b", "--to", "c"))
            b.close()

        with self.subTest("while programs return"):
            d = self.guest("d", waits=True)
            self.expect_arrived(d, self.at_return(c, d, lambda: d.shell.run(KILL_AGENT)))
            c.close()

        with self.subTest("the proxy is killed while programs return"):
            e = self.guest("e", waits=True)
            outcome = self.at_return(d, e, self.proxy.kill, fails=None)  # the program may have ended before it is asked
            told = outcome.get("error") or f"ended: {outcome.get('ended')}"
            self.assertRegex(told, "the guest runs at e, with its card, but not all programs came back: in the guest: beats|ended: .'beats")
            self.assertEqual((e.status(), e.has_card(), outcome["runs_at"], outcome["gpu"]), ("running", True, "e", "card"))
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


if __name__ == "__main__":
    main()
