#!/usr/bin/python3 -B
"""`grus vm` and domains of libvirt's: between two hosts, each a set of namespaces with a libvirtd in it."""

import json
import os
import shutil
import signal
import subprocess
import time

import guests
from guests import CACHE, GRUS, MAC, SOURCE, Failed, Shell, run
from vm_test import PORT, VmTest, main

DOMAIN = """
<domain type='{type}'>
  <name>web</name>
  <uuid>7a1e4c52-3e36-4b5e-9a3c-0d6f5f8f1b11</uuid>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>2</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{cache}/kernel</kernel>
    <initrd>{start}</initrd>
    <cmdline>{options}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='{cpu}'/>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='{cache}/root.ext4'/>
      <target dev='vda' bus='virtio'/>
      <readonly/>
    </disk>
    <interface type='bridge'>
      <mac address='{mac}'/>
      <source bridge='bridge'/>
      <model type='virtio'/>
    </interface>
    <controller type='usb' model='none'/>
    <serial type='unix'><source mode='bind' path='{sockets}/shell'/></serial>
    <channel type='unix'>
      <source mode='bind' path='{sockets}/agent'/>
      <target type='virtio' name='org.grus.agent.0'/>
    </channel>
    {card}
    <memballoon model='none'/>
  </devices>
</domain>
"""
CARD = "<rng model='virtio'><backend model='random'>/dev/urandom</backend><alias name='ua-gpu'/></rng>"
OWN = ("--mount", "--uts", "--net", "--pid", "--mount-proc", "--fork", "--kill-child")


class Host:
    def __init__(self, folder, number, sockets):
        """`sockets` is where its domains have theirs."""
        self.name = f"host-{number}"
        self.folder = folder / self.name
        self.sockets = self.folder / "sockets"
        self.address = f"10.77.0.{10 + number}"
        self.uri = f"qemu+unix:///system?socket={self.folder}/libvirt-sock"
        self.shell = None
        (self.folder / "etc/hooks").mkdir(parents=True)
        self.sockets.mkdir()
        shutil.copy(SOURCE / "docs/libvirt-hook", self.folder / "etc/hooks/qemu")
        environment = {**os.environ, "PATH": f"{GRUS.parent}:{os.environ['PATH']}"}
        command = ["unshare", *OWN, SOURCE / "tests/vm/libvirt_host", self.name, self.address, self.folder, sockets,
                   CACHE / "libvirt"]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process.stdout.readline()
        cable = f"cable{number}"
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "cable", "netns", self._process.pid)
        run("ip", "link", "set", cable, "master", "bridge", "up")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        guests.connect(self.folder / "libvirt-sock").close()

    def virsh(self, *words):
        return run("virsh", "--quiet", "--connect", self.uri, *words)

    def has_card(self):
        return "ua-gpu" in self.virsh("dumpxml", "web")

    def connect_shell(self):
        self.close_shell()
        self.shell = Shell(self.sockets / "shell")

    def close_shell(self):
        if self.shell:
            self.shell.close()
        self.shell = None

    def close(self):
        """Pulls the plug."""
        self.close_shell()
        self._process.kill()
        self._process.communicate()


class LibvirtTest(VmTest):
    def setUp(self):
        super().setUp()
        for tool in ("virsh", "libvirtd"):
            if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin"):
                raise Failed(f"{tool} is missing; `.ci/setup check-vm` installs it")
        sockets = self.place / "sockets"
        sockets.symlink_to(self.place / "host-1/sockets")  # to `grus vm` the first host is this one
        self.hosts = []
        for number in (1, 2):
            self.hosts.append(Host(self.place, number, sockets))
            self.addCleanup(self.hosts[-1].close)
        (self.place / "web.xml").write_text(self.xml(sockets))
        for host in self.hosts:
            host.virsh("define", self.place / "web.xml")
        self.write_file()

    def xml(self, sockets):
        has_kvm = guests.acceleration() == "kvm"
        return DOMAIN.format(type="kvm" if has_kvm else "qemu", cpu="host-passthrough" if has_kvm else "maximum",
                             memory=guests.MEMORY_MIB, cache=CACHE, start=self.folder / "start", sockets=sockets,
                             options=guests.KERNEL_OPTIONS.format(number=2, more=""), mac=MAC.format(2), card=CARD)

    def write_file(self):
        """The agent's socket is in libvirt's XML. But that of another host must be brought here, and named."""
        a, b = self.hosts
        more = f"gpu = '''{CARD}'''\nproxy = 'tcp:{guests.HOST}:{PORT}'\n"
        (self.place / "vms.toml").write_text(
            f"[web]\nlibvirt = '{a.uri}'\nincoming = 'tcp://{a.address}'\n{more}"
            f"[web-at-b]\nlibvirt = '{b.uri}'\ndomain = 'web'\nincoming = 'tcp://{b.address}'\nagent = '{b.sockets}/agent'\n{more}")

    def listed(self):
        return {row["name"]: row for row in self.vm("list")}

    def test_there_and_back(self):
        a, b = self.hosts
        a.virsh("start", "web")
        a.connect_shell()
        a.shell.wait_until_ready(60)
        for name in ("one", "two"):
            self.start_program(a, name)
        rows = self.listed()
        self.assertEqual(([one["at"] for one in rows["web"]["programs"]], rows["web"]["gpu"]), (["local", "local"], True))
        self.assertEqual(rows["web-at-b"]["status"], "shut off")

        with self.subTest("virsh migrate"):
            with self.assertRaisesRegex(Failed, "`grus vm migrate web --to …`"):
                a.virsh("migrate", "--live", "web", b.uri, "--migrateuri", f"tcp://{b.address}")
            self.expect_as_before()

        with self.subTest("live"):
            outcome = self.vm("migrate", "web", "--to", "web-at-b")
            self.report("live, libvirt, two programs", outcome, ("one", "two"))
            self.assertEqual((outcome["runs_at"], outcome["gpu"], b.has_card()), ("web-at-b", "card", True))
            self.expect_went_on(outcome, ("one", "two"))
            rows = self.listed()
            self.assertEqual((rows["web"]["status"], rows["web-at-b"]["status"]), ("shut off", "running"))
            self.assertNotIn("urn:grus", b.virsh("dumpxml", "web"))
            b.connect_shell()
            self.expect_right(b, "two")

        with self.subTest("stop and copy, and back"):
            outcome = self.vm("migrate", "web-at-b", "--to", a.uri, "--stop-and-copy")
            self.report("stop and copy, libvirt", outcome, ("one",))
            self.assertEqual((outcome["runs_at"], outcome["gpu"]), ("web", "card"))
            self.expect_as_before()

        with self.subTest("the card goes and comes"):
            self.vm("detach-gpu", "web")
            self.assertFalse(a.has_card())
            self.beats.wait_for("one", 3)
            self.vm("attach-gpu", "web")
            self.expect_as_before()

        with self.subTest("cancelled"):
            outcome = self.under_way(lambda child: child.send_signal(signal.SIGINT))
            self.assertRegex(outcome["error"], "cancelled; the guest runs at web, with its card and its programs on it")
            self.expect_as_before()

        with self.subTest("the other host dies"):
            outcome = self.under_way(lambda _: b.close())
            self.assertRegex(outcome["error"], "libvirt's migration failed: .*; the guest runs at web, with its card")
            self.expect_as_before()
            outcome = self.vm("migrate", "web", "--to", "web-at-b", fails=True)
            self.assertRegex(outcome["error"], "Failed to connect socket")
            self.expect_as_before()

        a.connect_shell()
        self.expect_right(a, "one")

    def expect_as_before(self):
        row = self.listed()["web"]
        self.assertEqual((row["status"], row["gpu"]), ("running", True))
        self.assertEqual({one["at"] for one in row["programs"]}, {"local"})
        self.beats.wait_for("one", 3)

    def under_way(self, do):
        """Migrates, and does something while libvirt is about it."""
        a = self.hosts[0]
        a.virsh("migrate-setspeed", "web", 2)
        command = [GRUS, "vm", "migrate", "web", "--to", "web-at-b", "--config", self.place / "vms.toml", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            while "memory_processed" not in a.virsh("domjobinfo", "web", "--rawstats"):
                if child.poll() is not None:
                    self.fail(f"it ended before libvirt's migration: {child.communicate()}")
                time.sleep(0.1)
            do(child)
            output, errors = child.communicate(timeout=120)
        self.assertEqual(child.returncode, 1, output + errors)
        return json.loads(output)


if __name__ == "__main__":
    main()
