"""What the door knows of models: tokenizers and chat templates, read once and kept while used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.verbs.text import files_dir, find_model, need_tokenizer
from glia.local.values import ModelValue
from glia.model.chat import TEMPLATE, TOKENIZER_CONFIG, ChatTemplate
from glia.model.model_id import CONFIG, TOKENIZER
from glia.model.tokenizer import GENERATION_CONFIG, Tokenizer

_MAX_KEPT = 8  # a tokenizer may take 100 MB
_FILES = (TOKENIZER, TOKENIZER_CONFIG, TEMPLATE, CONFIG, GENERATION_CONFIG)

_Key = tuple[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class TextModel:
    """A model and its words. `template`: None where it has no chat template."""

    value: ModelValue
    tokenizer: Tokenizer
    template: ChatTemplate | None


class TextModels:
    """Those used last. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while one is read: others would read it, too
        self._kept: OrderedDict[_Key, tuple[Tokenizer, ChatTemplate | None]] = OrderedDict()

    def get(self, models: Sequence[ModelValue], name: str) -> TextModel:
        """The model of a name, out of those that gliad knows.

        Raises: UnknownModel, BadModelFile, BadRequest (it has no tokenizer).
        """
        value = find_model(models, name)
        key = _key(value)
        with self._lock:
            words = self._kept.pop(key, None) or _read(value)
            self._kept[key] = words
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return TextModel(value, *words)


def _read(model: ModelValue) -> tuple[Tokenizer, ChatTemplate | None]:
    tokenizer = need_tokenizer(model)
    found = files_dir(model)
    return tokenizer, ChatTemplate.load(found) if found else None


def _key(model: ModelValue) -> _Key:
    """Where its files are, and how they look: they may be replaced while we run."""
    found = files_dir(model)
    looks = tuple(_look(found / name) for name in _FILES) if found else ()
    return str(found or model.name), looks


def _look(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
