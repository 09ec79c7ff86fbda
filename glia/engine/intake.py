"""Requests become sequences, where the model can take them."""

from __future__ import annotations

from collections.abc import Sequence as Several

from glia.engine.replay import Replay
from glia.engine.sampler import Sampler
from glia.engine.sequence import Request, Sequence
from glia.errors import PromptError
from glia.graph.answers import ChosenSpan, are_in_order
from glia.kv.compute import ComputeModel


def take_in(request: Request, number: int, model: ComputeModel, block_size: int) -> Sequence:
    """The sequence of a request. Raises: PromptError (empty, token out of range, too long)."""
    _check(request, model)
    if request.chosen is not None:
        return _again(request, request.chosen, number, block_size)
    limit = min(len(request.tokens) + request.max_tokens, model.context_tokens)
    return Sequence(
        number=number,
        request=request,
        limit=limit,
        num_slots=-(-limit // block_size),
        sampler=Sampler(request.sampling),
        tokens=list(request.tokens),
    )


def _again(request: Request, spans: Several[ChosenSpan], number: int, block_size: int) -> Sequence:
    if not are_in_order(spans, len(request.tokens)):
        raise PromptError("what was chosen of a log does not lie in order in it")
    replay = Replay(request.tokens, spans)
    return Sequence(
        number=number,
        request=request,
        limit=len(request.tokens),
        num_slots=-(-len(request.tokens) // block_size),
        sampler=replay.sampler() if spans else Sampler(request.sampling),
        tokens=list(request.tokens[: replay.num_asked]),
        replay=replay,
    )


def _check(request: Request, model: ComputeModel) -> None:
    length, room = len(request.tokens), model.context_tokens
    if request.chosen is not None:
        room += 1  # it has its answers
    if not length:
        raise PromptError("the prompt is empty", hint="give at least one token")
    if length >= room:
        raise PromptError(
            f"the prompt has {length} tokens; the model's context has room for {room}, "
            "answer included",
            hint="shorten the prompt",
        )
    if not all(0 <= token < model.vocab_size for token in request.tokens):
        raise PromptError(
            f"a token is outside of the vocabulary of {model.vocab_size}",
            hint="tokenize with this model's own tokenizer",
        )
