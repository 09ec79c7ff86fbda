"""Gliads with a tiny model: their settings, and prompts to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers.utils.logging import disable_progress_bar

from glia.client import Client
from glia.local import messages as m
from glia.local import values
from simulations.bench.node import Node
from simulations.tiny_model import VOCABULARY, save_model

MODEL = "tiny"
# Much K/V for a model of its size.
DEEP = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8}
# Little K/V for what it takes to compute: 1,344 tokens took 8.7 s on a busy core, asking for them
# and fetching them 0.25 s. gliad waits for peers 5 % of the time that computing takes (C21), which
# is 0.43 s here; of a model that took 1.4 s peers were too late at times, on a busy machine.
WIDE = {"intermediate_size": 49_152}
_MORE_TOKENS = 8
_LOOPBACK = "/ip4/127.0.0.1/tcp/0"
_SETTINGS = """models_dir = "{models}"
[l0]
size = "{tiers.l0_kib}KiB"
[l1]
size = "{tiers.l1_kib}KiB"
staging_size = "{tiers.staging_kib}KiB"
prefault_size = "0B"
[l2]
size = "{tiers.l2_kib}KiB"
segment_size = "1MiB"
[engine]
num_threads = 1
"""
_NETWORK = """[network]
enabled = true
listen = ["{listen}"]
bootstrap = [{bootstrap}]
"""


@dataclass(frozen=True)
class Tiers:
    """KiB of each."""

    l0_kib: int = 4096
    l1_kib: int = 8192
    staging_kib: int = 1024
    l2_kib: int = 65_536


USUAL = Tiers()


@contextmanager
def models_dir(sizes: Mapping[str, int] = DEEP) -> Iterator[Path]:
    """With one model, whose tokens are words."""
    disable_progress_bar()
    with TemporaryDirectory(prefix="gliad-processes-") as directory:
        path = Path(directory)
        save_model(path / "files", **sizes)
        manifest = f'source = "{path / "files"}"\ndtype = "float32"\n'
        (path / f"{MODEL}.model").write_text(manifest, encoding="utf-8")
        yield path


def offline(path: Path, name: str, tiers: Tiers = USUAL) -> Node:
    """One without a network."""
    return Node(path / name, _SETTINGS.format(models=path, tiers=tiers))


def online(path: Path, name: str, bootstrap: Sequence[str] = (), settings: str = "") -> Node:
    """One that dials these addresses, on loopback."""
    quoted = ", ".join(f'"{address}"' for address in bootstrap)
    network = _NETWORK.format(listen=_LOOPBACK, bootstrap=quoted)
    return Node(path / name, _SETTINGS.format(models=path, tiers=USUAL) + network + settings)


def address_of(node: Node) -> str:
    with node.client() as client:
        return client.identity().addresses[0]


def words(num: int, seed: str) -> list[int]:
    """Tokens of a prompt."""
    source = random.Random(seed)
    return [source.randrange(3, VOCABULARY) for _ in range(num)]


def ask(
    node: Node, tokens: Sequence[int], num_public: int = 0, *, num_more: int = 8
) -> m.Generated:
    """A greedy answer; so many leading tokens are public."""
    spans = [(0, num_public, "public"), (num_public, len(tokens), "private")]
    said = [values.MessageValue("user", None, *span) for span in spans if span[0] < span[1]]
    with Client.connect(node.data_dir) as client:
        *_, last = client.generate(
            MODEL, tokens, max_tokens=_MORE_TOKENS, ignore_eos=True,
            turn=values.TurnValue(messages=said),
        )  # fmt: skip
    if not isinstance(last, m.Generated):
        raise RuntimeError(f"gliad ended with {last!r}")
    return last
