"""Test guests: how they are made, started, talked to, and connected to each other."""

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GRUS_BUILD", SOURCE / "build"))
GRUS = BUILD / "bin" / "grus"
BEATS = BUILD / "bin" / "tests" / "beats"
CACHE = pathlib.Path(os.environ.get("GRUS_VM_CACHE", BUILD / "vm"))
MEMORY_MIB = 512
# Under emulation QEMU 7.2 misses changes of memory while it migrates if that isn't the only one, and all are of whole words
# of its map of pages: of multiples of 256 KiB. KVM keeps track of changes itself.
ODD_KIB = 8
HOST = "10.77.0.1"  # as guests see it
MAC = "52:54:00:67:72:{:02x}"  # by the guest's number, which is also the last of its address
AREA_MIB = 256
TAPS = itertools.count()

# There is no such console, so the first messages go to the serial line, and later ones nowhere. On a busy machine the
# kernel's check of the timer fails now and then.
KERNEL_OPTIONS = ("console=hvc0 earlyprintk=serial,ttyS0 loglevel=4 panic=-1 mitigations=off no_timer_check "
                  "grus.address=10.77.0.{number} {more}")

FRAME_BEGINS = (0x9d7f3ac15e62b804).to_bytes(8, "little")  # of a relay

# virtio-rng stands in for the card: it has a driver to unload, and a device file by which it is in use.
AGENT_TOML = """
devices = ["1af4:1044"]
device_files = ["/dev/hwrng"]
unload = ["rmmod virtio_rng"]
load = ["insmod /opt/modules/virtio-rng.ko"]
probe = "grep -q virtio_rng /sys/class/misc/hw_random/rng_available"
"""


class Failed(Exception):
    pass


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise Failed(f"{command}: {done.stderr or done.stdout}")
    return done.stdout


def connect(path, seconds=20):
    """To a socket that somebody is about to listen on."""
    end = time.monotonic() + seconds
    while True:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(str(path))
            return line
        except (FileNotFoundError, ConnectionRefusedError):
            line.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


class Qmp:
    """The test's own monitor of a QEMU, besides the one that `grus vm` has."""

    def __init__(self, path):
        self._line = connect(path)
        self._file = self._line.makefile("r")
        self._file.readline()
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self._line.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        for text in self._file:
            answer = json.loads(text)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise Failed(answer["error"]["desc"])
        raise Failed("QEMU ended")

    def close(self):
        self._file.close()
        self._line.close()


class Shell:
    """The shell on a guest's serial line."""

    def __init__(self, path):
        self._line = connect(path)
        self._received = b""
        self._number = 0

    def _wait_for(self, mark, seconds):
        end = time.monotonic() + seconds
        while mark not in self._received:
            ready, _, _ = select.select([self._line], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise Failed(f"the guest didn't say {mark!r} but {self._received[-2000:]!r}")
            more = self._line.recv(65536)
            if not more:
                raise Failed(f"the guest's QEMU ended: {self._received[-2000:]!r}")
            self._received += more
        before, _, self._received = self._received.partition(mark)
        return before.decode(errors="replace")

    def wait_until_ready(self, seconds):
        self._wait_for(b"ready\n", seconds)

    def run(self, command, seconds=60):
        """What it prints; an error if it fails."""
        self._number += 1
        mark = f"@{self._number}@"
        self._line.sendall(f"{command}\necho @'{self._number}@' $?\n".encode())
        output = self._wait_for(f"{mark} ".encode(), seconds)
        status = int(self._wait_for(b"\n", seconds))
        if status != 0:
            raise Failed(f"{command}: exit status {status}: {output}")
        return output.replace("\r", "")

    def close(self):
        self._line.close()


class Tap:
    """Between a port of a guest's and its relay at the host: counts what goes through. A byte alone is a wake-up."""

    def __init__(self, port):
        self.path = port.with_suffix(".tap")
        self.frames = {"to guest": 0, "to host": 0}
        self._qemu = connect(port)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.path))
        self._listening.listen(1)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        relay, _ = self._listening.accept()
        with relay:
            threading.Thread(target=self._copy, args=(relay, self._qemu, "to guest"), daemon=True).start()
            self._copy(self._qemu, relay, "to host")

    def _copy(self, source, to, what):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.frames[what] += data.count(FRAME_BEGINS)
                to.sendall(data)

    def close(self):
        self._qemu.shutdown(socket.SHUT_RDWR)
        for one in (self._qemu, self._listening):
            one.close()


def work():
    """What the machine's cores have done so far, in ticks: for this process and all that it started, and for everybody."""
    user, nice, system, _, _, *interrupts = map(int, pathlib.Path("/proc/stat").read_text().split()[1:8])
    rows = {}
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = file.read_text().rsplit(")", 1)[1].split()
            rows[int(file.parent.name)] = (int(fields[1]), sum(int(part) for part in fields[11:15]))
    own, parents = 0, {os.getpid()}
    while parents:
        own += sum(rows[pid][1] for pid in parents if pid in rows)
        parents = {pid for pid, (parent, _) in rows.items() if parent in parents}
    return own, user + nice + system + sum(interrupts)


class Others:
    """Which part of the machine's cores they leave to this process and all that it started."""

    def __init__(self):
        self._seen = []
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            own, everybodys = work()
            self._seen.append((time.time(), everybodys - own))
            time.sleep(1)

    def leave(self, start, end):
        before = max((one for one in self._seen if one[0] <= start), default=self._seen[0])
        after = min((one for one in self._seen if one[0] >= end), default=self._seen[-1])
        ticks = (after[0] - before[0]) * os.cpu_count() * os.sysconf("SC_CLK_TCK")
        return min(1.0, max(0.05, 1 - (after[1] - before[1]) / ticks)) if ticks else 1.0


def enter_network():
    """Starts the program again, in a network namespace of its own, with a bridge for guests."""
    if "GRUS_VM_NAMESPACE" not in os.environ:
        if os.geteuid() != 0:
            sys.exit("it needs root, for a network of its own")
        os.environ["GRUS_VM_NAMESPACE"] = "own"
        os.execvp("unshare", ["unshare", "--net", sys.executable, "-B", *sys.argv])
    # With an address of its own: else it has that of a port, and another when ports come.
    for command in ("ip link set lo up", "ip link add bridge address 02:67:72:75:73:01 type bridge", f"ip addr add {HOST}/24 dev bridge",
                    "ip link set bridge up"):
        run(*command.split())


def make_tap():
    """A guest's end of that network."""
    tap = f"tap{next(TAPS)}"
    run("ip", "tuntap", "add", tap, "mode", "tap")
    run("ip", "link", "set", tap, "master", "bridge", "up")
    return tap


def archive(folder, file):
    """Everything in the folder, as the kernel unpacks it."""
    names = subprocess.run(["find", "."], cwd=folder, capture_output=True, check=True).stdout
    with open(file, "wb") as output:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=folder, input=names, stdout=output, check=True)


def make_start(file, keys=None, programs=(), agent=AGENT_TOML):
    """What the guest's kernel starts with: a shell, and Grus as it is built now, with the test's program and more."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for part in ("opt/grus/bin", "opt/grus/lib/grus-vendors", "etc/grus"):
            (root / part).mkdir(parents=True)
        shutil.copy(SOURCE / "tests/vm/guest/init", root / "init")
        for program in (GRUS, BEATS, *programs):
            shutil.copy(program, root / "opt/grus/bin")
            run("strip", "--strip-debug", root / "opt/grus/bin" / program.name)
        shutil.copy(BUILD / "lib/libgrus.so", root / "opt/grus/lib")
        run("strip", "--strip-debug", root / "opt/grus/lib/libgrus.so")
        (root / "opt/grus/lib/grus-vendors/grus.icd").write_text("/opt/grus/lib/libgrus.so\n")
        (root / "etc/grus/agent.toml").write_text(agent)
        if keys:
            shutil.copytree(keys, root / "etc/grus/keys")
        if (CACHE / "pocl.tar").exists():
            with tarfile.open(CACHE / "pocl.tar") as cache:
                cache.extractall(root / "opt")
        archive(root, file)
    addition = pathlib.Path(file).read_bytes()
    pathlib.Path(file).write_bytes((CACHE / "start.cpio").read_bytes() + addition)


class Guest:
    """A QEMU with the test guest in it, or waiting for it to come."""

    def __init__(self, folder, name, start, *, tap=None, waits=False, disk=None, accel=None, append="", number=2,
                 area=None, has_card=True):
        """`area` is what else its shared-memory device is told; None: it has none."""
        self.name, self.folder = name, pathlib.Path(folder) / name
        self.folder.mkdir()
        self._shell = self._monitor = None
        self.card = {"driver": "virtio-rng-pci", "id": "gpu", "bus": "place0"} if has_card else {}
        self.incoming = f"unix:{self.folder}/incoming.sock"
        accel = accel or acceleration()
        command = [
            "qemu-system-x86_64", "-name", name, "-machine", "q35", "-accel", accel,
            "-cpu", "host" if accel == "kvm" else "max", "-smp", "2",
            "-m", f"{(MEMORY_MIB << 10) + (0 if area is None else ODD_KIB)}K",
            "-nodefaults", "-display", "none", "-no-reboot",
            "-kernel", CACHE / "kernel", "-initrd", start, "-append",
            KERNEL_OPTIONS.format(number=number, more=append),
            "-serial", f"unix:{self.folder}/shell.sock,server=on,wait=off",
            "-drive", f"file={CACHE}/root.ext4,format=raw,if=none,id=root,readonly=on",
            "-device", "virtio-blk-pci,drive=root",
            "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=agent,path={self.folder}/agent.sock,server=on,wait=off",
            "-device", "virtserialport,chardev=agent,name=org.grus.agent.0",
            "-chardev", f"socket,id=gpus,path={self.folder}/gpus.sock,server=on,wait=off",
            "-device", "virtserialport,chardev=gpus,name=org.grus.gpu.0",
            "-device", "pcie-root-port,id=place0,chassis=1,slot=1",
            "-qmp", f"unix:{self.folder}/qmp.sock,server=on,wait=off",
            "-qmp", f"unix:{self.folder}/monitor.sock,server=on,wait=off"]
        if tap:
            command += ["-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                        "-device", f"virtio-net-pci,netdev=net,mac={MAC.format(number)}"]
        if area is not None:
            self.area = self.folder / "area"
            with open(self.area, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.truncate(AREA_MIB << 20)
            command += ["-object", f"memory-backend-file,id=area,mem-path={self.area},size={AREA_MIB}M,share=on",
                        "-device", f"ivshmem-plain,memdev=area,{area}"]
        if disk:
            command += ["-drive", f"file={disk},format=raw,if=none,id=disk", "-device", "virtio-blk-pci,drive=disk"]
        if waits:
            command += ["-incoming", self.incoming]
        elif has_card:
            command += ["-device", "virtio-rng-pci,id=gpu,bus=place0"]
        with open(self.folder / "qemu.log", "w", encoding="utf-8") as log:
            self.qemu = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log,
                                         stderr=log)

    @property
    def shell(self):
        if not self._shell:
            self._shell = Shell(self.folder / "shell.sock")
        return self._shell

    @property
    def monitor(self):
        if not self._monitor:
            self._monitor = Qmp(self.folder / "monitor.sock")
        return self._monitor

    def status(self):
        return self.monitor.ask("query-status")["status"]

    def has_card(self):
        return any(one["name"] == "gpu" for one in self.monitor.ask("qom-list", path="/machine/peripheral"))

    def table(self, **more):
        """Its part of the file that `grus vm` reads."""
        entries = {"qmp": f"{self.folder}/qmp.sock", "agent": f"{self.folder}/agent.sock", "incoming": self.incoming,
                   **more}
        card = ", ".join(f"{key} = {json.dumps(value)}" for key, value in self.card.items())
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in entries.items())
        return f"[{self.name}]\n{text}" + (f"gpu = {{ {card} }}\n" if card else "")

    def close(self):
        for one in (self._shell, self._monitor):
            if one:
                one.close()
        self._shell = self._monitor = None
        if self.qemu.poll() is None:
            self.qemu.kill()
        self.qemu.wait()


def acceleration():
    """kvm, if a guest really starts with it."""
    known = CACHE / "acceleration"
    if not known.exists():
        found = "tcg"
        if os.access("/dev/kvm", os.W_OK):
            with tempfile.TemporaryDirectory() as folder:
                make_start(f"{folder}/start")
                guest = Guest(folder, "try", f"{folder}/start", accel="kvm")
                try:
                    guest.shell.wait_until_ready(15)
                    found = "kvm"
                except (Failed, OSError):
                    pass
                finally:
                    guest.close()
        known.write_text(found)
    return known.read_text()


def prepare():
    """Makes the guest, unless it is there, and has PoCL compile once what programs will need: that takes long there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    subprocess.run([SOURCE / "tests/vm/guest/build", CACHE], check=True)
    made_of = hashlib.sha256((CACHE / "made_of").read_bytes() + acceleration().encode() +
                             (SOURCE / "tests/vm/beats.cpp").read_bytes()).hexdigest()
    mark = CACHE / "compiled"
    if mark.exists() and mark.read_text() == made_of:
        return
    (CACHE / "pocl.tar").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        make_start(f"{folder}/start")
        with open(f"{folder}/disk", "wb") as disk:
            disk.truncate(64 << 20)
        guest = Guest(folder, "compile", f"{folder}/start", disk=f"{folder}/disk")
        try:
            guest.shell.wait_until_ready(60)
            guest.shell.run("timeout -s TERM 30 grus run -- beats a 127.0.0.1 9", 120)
            guest.shell.run("busybox tar -cf /dev/vdb -C /tmp pocl && sync", 60)
        finally:
            guest.close()
        shutil.copy(f"{folder}/disk", CACHE / "pocl.tar")
    mark.write_text(made_of)
