"""What a TCP connection on this host carries, with nothing of Grus's at either end."""

import contextlib
import os
import socket
import time

PARTS = {"write_1m": (1 << 20, 64), "write_bulk": (256 << 20, 1)}  # case: bytes at a time, times


class BareTcp:
    """The other end is a process of its own, which says when it has all of a turn."""

    MODE = "bare tcp"

    def __enter__(self):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.process = os.fork()
            if self.process == 0:
                with contextlib.suppress(OSError):
                    self.receive(listening.accept()[0])
                os._exit(0)
            self.socket = socket.create_connection(listening.getsockname())
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = {size: memoryview(bytearray(os.urandom(1 << 20) * (size >> 20))) for size, _ in PARTS.values()}
        return self

    def __exit__(self, *_):
        self.socket.close()
        os.waitpid(self.process, 0)

    @staticmethod
    def receive(connection):
        room = {size: memoryview(bytearray(size)) for size, _ in PARTS.values()}
        while size := int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "little"):
            times = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "little")
            for _ in range(times):
                left = room[size]
                while left:
                    left = left[connection.recv_into(left):]
            connection.sendall(b"x")

    def measure(self, case):
        """GB/s"""
        size, times = PARTS[case]
        began = time.monotonic()
        self.socket.sendall(size.to_bytes(8, "little") + times.to_bytes(8, "little"))
        for _ in range(times):
            self.socket.sendall(self.data[size])
        self.socket.recv(1)
        return size * times / (time.monotonic() - began) / 1e9
