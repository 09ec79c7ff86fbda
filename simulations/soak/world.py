"""The node that is soaked: small tiers, so that all of them overflow, and a model to ask."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from simulations.bench.node import Node
from simulations.tiny_model import VOCABULARY, save_model

_ROOT = Path(__file__).resolve().parents[2]
_TEXT_TOKENS = 60_000
_SETTINGS = """models_dir = "{models}"
[l0]
size = "{l0}MiB"
[l1]
size = "{l1}MiB"
prefault_size = "{l1}MiB"
[l2]
size = "{l2}MiB"
segment_size = "{segment}MiB"
[conversations]
max_anonymous = 24
[engine]
num_threads = 2
[http]
listen = "{listen}"
"""


@dataclass(frozen=True)
class Subject:
    """A model to ask, and words to ask it with.

    Attributes:
        text: tokens that prompts are cut from.
        long_tokens: a long prompt, within its context.
        tiers: MiB of l0, l1, l2 and of one segment: each far less than the load fills.
    """

    model: str
    models_dir: Path
    text: list[int]
    long_tokens: int
    tiers: tuple[int, int, int, int]


def find_subject(directory: Path) -> Subject:
    """SmolLM2 where `make setup` has brought it, else a tiny one made in `directory`."""
    models_dir = _ROOT / "models"
    tokenizer = models_dir / "smollm2" / "tokenizer.json"
    if tokenizer.exists():
        pages = sorted((_ROOT / "glia" / "spec").glob("*.md"))
        text = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
        tokens = Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False).ids
        return Subject("smollm2", models_dir, list(tokens), 2000, (96, 128, 256, 16))
    rng = random.Random(0)
    tokens = [rng.randrange(3, VOCABULARY) for _ in range(_TEXT_TOKENS)]
    save_model(directory / "tiny-files")
    manifest = f'source = "{directory / "tiny-files"}"\ndtype = "float32"\n'
    (directory / "tiny.model").write_text(manifest, encoding="utf-8")
    return Subject("tiny", directory, tokens, 1200, (4, 2, 6, 1))


@contextmanager
def soaked_node(subject: Subject, directory: Path, listen: str) -> Iterator[Node]:
    """A running node with tiers of the subject's sizes."""
    l0, l1, l2, segment = subject.tiers
    settings = _SETTINGS.format(
        models=subject.models_dir, l0=l0, l1=l1, l2=l2, segment=segment, listen=listen
    )
    with Node(directory / "node", settings) as node:
        yield node
