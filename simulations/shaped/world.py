"""An asker and a provider with SmolLM2, on two hosts."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from daemon.paths import default_models_dir
from glia.client import Client
from glia.errors import GliaError
from glia.local import values
from glia.local.messages import Generated
from simulations.bench.node import Node
from simulations.shaped.hosts import Hosts, two_hosts

_SETTINGS = """
models_dir = "{models}"
[l0]
size = "64MiB"
[l1]
size = "96MiB"
staging_size = "16MiB"
prefault_size = "0B"
[engine]
num_threads = 1
[network]
enabled = true
listen = ["{listen}"]
"""
_PATIENCE_S = 120.0
_WINDOW = 16


@dataclass(frozen=True)
class World:
    """Attributes: cold: what the provider answered to public prompts, by seed."""

    hosts: Hosts
    asker: Node
    provider: Node
    cold: dict[int, Generated]

    def meet(self) -> None:
        """They are connected, and the asker knows nothing of how fast the other is."""
        with self.provider.client() as client:
            known = client.identity()
        with self.asker.client() as client:
            with suppress(GliaError):  # unknown still
                client.forget_peer(known.peer_id)
            client.add_peer(known.addresses[0])


def answer(data_dir: Path, seed: int, num_tokens: int, visibility: str = "public") -> Generated:
    """Greedy, of a few tokens, to a prompt of its seed's; by the gliad there."""
    rng = random.Random(seed)
    tokens = [rng.randrange(100, 40_000) for _ in range(num_tokens)]
    said = values.MessageValue("user", None, 0, num_tokens, visibility)
    with Client.connect(data_dir) as client:
        *_, last = client.generate(
            "smollm2",
            tokens,
            max_tokens=4,
            ignore_eos=True,
            turn=values.TurnValue(messages=[said]),
        )
    if not isinstance(last, Generated):
        raise RuntimeError(f"gliad ended with {last!r}")
    return last


@contextmanager
def new_world(seeds: Sequence[int], num_tokens: int) -> Iterator[World]:
    """The provider computed and published the prompts of these seeds; the asker knows nobody, and
    how fast it computes. Raises: CannotShape."""
    with ExitStack() as stack:
        hosts = stack.enter_context(two_hosts())
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glia")))
        models = default_models_dir(os.environ)
        provider, asker = (
            stack.enter_context(
                Node(path / name, _SETTINGS.format(models=models, listen=listen), before)
            )
            for name, listen, before in (
                ("provider", hosts.listen[0], hosts.one),
                ("asker", hosts.listen[1], hosts.other),
            )
        )
        answer(asker.data_dir, len(seeds), num_tokens, "private")
        cold = {seed: answer(provider.data_dir, seed, num_tokens) for seed in seeds}
        _until_published(provider, len(seeds) * (num_tokens // _WINDOW))
        yield World(hosts, asker, provider, cold)


def _until_published(node: Node, num_windows: int) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    with node.client() as client:
        while client.status().counters.get("windows_published", 0) < num_windows:
            if time.monotonic() > deadline_s:
                raise RuntimeError("what was answered is not published")
            time.sleep(0.1)
