"""What measurements share: how thorough they are, the text of their prompts, a node, stock."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import torch
from tokenizers import Tokenizer

from simulations.bench.node import Node
from simulations.bench.stock import Stock

ROOT = Path(__file__).resolve().parents[2]
MODEL = "smollm2"
MODEL_DIR = ROOT / "models" / MODEL
_L1 = '[l1]\nsize = "1GiB"\n'


class Setting:
    """Made when they are first asked for, and closed together.

    Attributes:
        reps: how often each thing is done.
    """

    def __init__(self, *, is_quick: bool) -> None:
        self.is_quick = is_quick
        self.reps = 1 if is_quick else 5
        self._open = ExitStack()

    def close(self) -> None:
        """Stop the node."""
        self._open.close()

    @cached_property
    def text(self) -> list[int]:
        """Tokens of this project's own pages."""
        tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
        pages = [ROOT / "README.md", *sorted((ROOT / "glia" / "spec").glob("*.md"))]
        text = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def node(self) -> Node:
        """A node whose engine is loaded."""
        return self.new_node("")

    @cached_property
    def stock(self) -> Stock:
        """The model in stock transformers."""
        return Stock(MODEL_DIR, torch.bfloat16)

    def new_node(self, settings: str) -> Node:
        """Another such node, which lives as long as the setting."""
        directory = self._open.enter_context(tempfile.TemporaryDirectory(prefix="gliad-bench-"))
        node = self._open.enter_context(Node(Path(directory) / "node", _L1 + settings))
        node.run(MODEL, self.text[:40])
        return node
