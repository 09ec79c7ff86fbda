"""Text to tokens and back for the verbs: the daemon itself never sees text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from glia.errors import BadRequest, UnknownModel
from glia.graph.ids import ModelId
from glia.local.values import ModelValue
from glia.model.chat import ChatTemplate
from glia.model.model_id import TOKENIZER
from glia.model.tokenizer import TextStream, Tokenizer


def find_model(models: Iterable[ModelValue], name: str) -> ModelValue:
    """The model of that name. Raises: UnknownModel."""
    known = {model.name: model for model in models}
    if name not in known:
        raise UnknownModel(
            f"no model is called {name!r}; known: {', '.join(sorted(known)) or 'none'}",
            hint=f"gliad models add {name} PATH",
        )
    return known[name]


def model_id_of(models: Iterable[ModelValue], name: str) -> ModelId:
    """Raises: UnknownModel, BadRequest (it was never loaded)."""
    model = find_model(models, name)
    if model.model_id is None:
        raise BadRequest(f"{name} was never loaded here", hint=f"gliad run {name} TEXT")
    return ModelId(bytes.fromhex(model.model_id))


def files_dir(model: ModelValue) -> Path | None:
    """The directory with a model's tokenizer and configuration, None where not known yet."""
    if model.files_dir:
        return Path(model.files_dir)
    source = Path(model.source)
    return source if source.is_dir() else None


def tokenizer_of(model: ModelValue) -> Tokenizer | None:
    """A model's tokenizer, None where it has none here. Raises: BadModelFile."""
    found = files_dir(model)
    return Tokenizer.load(found) if found and (found / TOKENIZER).exists() else None


def need_tokenizer(model: ModelValue) -> Tokenizer:
    """As tokenizer_of. Raises: BadRequest where there is none."""
    if files_dir(model) is None:
        raise BadRequest(
            f"model {model.name!r} was never loaded here, so its tokenizer is not known yet",
            hint=f"gliad models add {model.name} {model.source} --replace",
        )
    tokenizer = tokenizer_of(model)
    if tokenizer is None:
        raise BadRequest(
            f"model {model.name!r} has no tokenizer here", hint="give --token-ids FILE instead"
        )
    return tokenizer


def chat_template(model: ModelValue) -> ChatTemplate:
    """A model's chat template. Raises: BadRequest where it has none, BadModelFile."""
    found = files_dir(model)
    template = ChatTemplate.load(found) if found else None
    if template is None:
        raise BadRequest(
            f"model {model.name!r} has no chat template",
            hint=f"gliad run {model.name} TEXT --raw continues a text as it is",
        )
    return template


def model_of(models: Iterable[ModelValue], model_id: bytes) -> ModelValue | None:
    """A model known here whose K/V this is; its name does not matter."""
    return next((model for model in models if model.model_id == model_id.hex()), None)


def window_texts(windows: Sequence[Sequence[int]], tokenizer: Tokenizer | None) -> list[str | None]:
    """The text of each window; together they are the text of the chain.

    A character whose bytes straddle two windows stands in the later one.
    """
    if tokenizer is None:
        return [None] * len(windows)
    stream = TextStream(tokenizer, skip_special=False)
    texts = [stream.push(tokens) for tokens in windows]
    if texts:
        texts[-1] += stream.finish()
    return list(texts)
