"""A network link of its own, between two network namespaces of this host. Needs root."""

import os
import subprocess


class Link:
    """Two network namespaces and a cable between them. Their addresses are of loopback's, which is all that a server
    listens at without a key."""

    SERVER, CLIENT = "127.1.0.1", "127.1.0.2"

    def __enter__(self):
        self.names = [f"grus-{os.getpid()}-{side}" for side in "ab"]
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", "cable", "netns", self.names[0], "type", "veth", "peer", "cable", "netns", self.names[1])
            for name, address in zip(self.names, (self.SERVER, self.CLIENT)):
                # A host reaches itself through lo, which must not have all of loopback's addresses then.
                self.ip("-n", name, "link", "set", "lo", "up")
                self.ip("-n", name, "address", "delete", "127.0.0.1/8", "dev", "lo")
                self.ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
                self.ip("-n", name, "link", "set", "cable", "up")
                for where in ("all", "cable"):
                    subprocess.run([*self.within(name), "sh", "-c", f"echo 1 > /proc/sys/net/ipv4/conf/{where}/route_localnet"],
                                   check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def within(name):
        return ["ip", "netns", "exec", name]

    @property
    def at_server(self):
        return self.within(self.names[0])

    @property
    def at_client(self):
        return self.within(self.names[1])

    def shape(self, bits_per_second):
        """No more than that in either direction, from now on."""
        for name in self.names:
            # Whole segments as the sender makes them, 64 KiB, and what a timer's tick lets through.
            subprocess.run([*self.within(name), "tc", "qdisc", "replace", "dev", "cable", "root", "tbf", "rate",
                            f"{bits_per_second:.0f}bit", "burst", "2mb", "latency", "20ms"], check=True)

    def set(self, state):
        self.ip("-n", self.names[1], "link", "set", "cable", state)

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)
