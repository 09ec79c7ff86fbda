"""Two hosts with a link whose shape can be changed, as long as a `with` lasts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO

from simulations.shaped.link import ADDRESSES, MTU
from simulations.shaped.shape import Shape


class CannotShape(Exception):
    """This machine, or this user, makes no network namespaces or TUN devices."""


class Hosts:
    """Each is what a command is begun with to run there.

    Attributes:
        listen: a multiaddr for each: its own address, any port.
    """

    def __init__(self, one: tuple[str, ...], other: tuple[str, ...], told: IO[str]) -> None:
        self.one, self.other, self._told = one, other, told
        self.listen = tuple(f"/ip4/{address}/tcp/0" for address in ADDRESSES)

    def shape(self, shape: Shape) -> None:
        """Have the link so from now on."""
        self._told.write(json.dumps(asdict(shape)) + "\n")
        self._told.flush()


@contextmanager
def two_hosts(mtu: int = MTU) -> Iterator[Hosts]:
    """Raises: CannotShape."""
    if not (shutil.which("nsenter") and shutil.which("ip")):
        raise CannotShape("nsenter or ip is missing")
    with subprocess.Popen(
        [sys.executable, "-m", "simulations.shaped.link", str(mtu)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as link:
        assert link.stdin
        assert link.stdout
        try:
            said = json.loads(link.stdout.readline() or "{}")
            if "hosts" not in said:
                raise CannotShape(said.get("cannot", "the link ended"))
            one, other = (tuple(words) for words in said["hosts"])
            yield Hosts(one, other, link.stdin)
        finally:
            link.stdin.close()
