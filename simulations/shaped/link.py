"""Two hosts and the link between them: `python -m simulations.shaped.link`, as root.

Each host is a network namespace whose only way out is a TUN device; this process carries the
packets from one to the other, so no part of the kernel but TUN is needed, and nothing leads
outside. It says in one line of JSON with which words a command is run on each host, takes a
new Shape from each line of its standard input, and ends with that; the hosts end with it and
with the processes that are on them.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import select
import struct
import subprocess
import sys
import time

from simulations.shaped.shape import Lane, Shape

ADDRESSES = ("192.0.2.1", "192.0.2.2")  # of documentation (RFC 5737)
MTU = 1500
JUMBO_MTU = 60_000  # for a link that is not to be slowed by this process
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_DEVICE = "link0"
_SHORT_S = 0.0002  # of waiting, which is not worth a sleep


def new_host(address: str, mtu: int) -> tuple[int, int]:
    """A namespace, which this process is in from now on. Returns: it, and its end of the link.

    Raises: OSError, where that is not allowed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace can be made")
    space = os.open("/proc/self/ns/net", os.O_RDONLY)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    for words in (
        "link set lo up",
        f"addr add {address}/24 dev {_DEVICE}",
        f"link set {_DEVICE} mtu {mtu} up",
    ):
        subprocess.run(["ip", *words.split()], check=True)  # noqa: S607
    return space, device


class Carrier:
    """Carries packets between two devices."""

    def __init__(self, devices: tuple[int, int], shape: Shape) -> None:
        self.shape = shape
        self._to = {devices[0]: devices[1], devices[1]: devices[0]}
        self._lanes = {device: Lane(seed) for seed, device in enumerate(devices)}
        self._under_way: list[tuple[float, int, int, bytes]] = []  # a heap
        self._num_packets = 0

    def take(self, device: int) -> None:
        """What a host sent."""
        now_s = time.monotonic()
        try:
            while packet := os.read(device, JUMBO_MTU + 100):
                arrives_s = self._lanes[device].arrives_s(len(packet), now_s, self.shape)
                if arrives_s is not None:
                    self._num_packets += 1
                    heapq.heappush(
                        self._under_way, (arrives_s, self._num_packets, self._to[device], packet)
                    )
        except BlockingIOError:
            pass

    def give(self) -> float | None:
        """Hand over what has arrived. Returns: seconds until more does, None: nothing is coming."""
        while self._under_way:
            wait_s = self._under_way[0][0] - time.monotonic()
            if wait_s > _SHORT_S:
                return wait_s
            _, _, device, packet = heapq.heappop(self._under_way)
            os.write(device, packet)
        return None


def main() -> int:
    """Until standard input ends."""
    mtu = int(sys.argv[1]) if len(sys.argv) > 1 else MTU
    try:
        hosts = [new_host(address, mtu) for address in ADDRESSES]
    except (OSError, subprocess.CalledProcessError) as error:
        print(json.dumps({"cannot": str(error)}), flush=True)
        return 1
    words = [["nsenter", f"--net=/proc/{os.getpid()}/fd/{space}"] for space, _ in hosts]
    print(json.dumps({"hosts": words}), flush=True)
    devices = hosts[0][1], hosts[1][1]
    carrier = Carrier(devices, Shape())
    poll = select.poll()
    for source in (*devices, sys.stdin.fileno()):
        poll.register(source, select.POLLIN)
    while True:
        wait_s = carrier.give()
        for source, _ in poll.poll(None if wait_s is None else wait_s * 1000):
            if source in devices:
                carrier.take(source)
            elif line := sys.stdin.readline():
                carrier.shape = Shape(**json.loads(line))
            else:
                return 0


if __name__ == "__main__":
    sys.exit(main())
