"""What tests of the verbs share: a gliad that says what it is told to, and saying a verb."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, structs

from daemon.cli import main
from glia.errors import NotFound
from glia.local import messages as m
from glia.local import network_values, values
from glia.model.tokenizer import Tokenizer
from tests.fake_conversations import FakeConversations
from tests.fake_gliad import FakeGliad

MODEL_ID = bytes(range(32))
TIP = b"t" * 32
ANSWER = "Paris. Or é?"


class World:
    """What the fake gliad knows; tests change it."""

    def __init__(self, model_dir: Path) -> None:
        self.model = values.ModelValue(
            name="tiny",
            source=str(model_dir),
            manifest="tiny.model",
            model_type="llama",
            dtype="float32",
            block_size=16,
            kv_quant_scheme="f32",
            position_anchor_mode="relative",
            model_id=MODEL_ID.hex(),
            context_tokens=64,
            files_dir=str(model_dir),
        )
        self.tokens = [*Tokenizer.load(model_dir).encode(ANSWER), 258]
        self.cached = values.CachedValue(l0=16)
        self.tip: bytes | None = TIP
        self.finish = "stop"
        self.timings_ms = {"queue": 1.0}
        self.warning: str | None = None
        self.windows: list[values.WindowValue] = []
        self.bad = 0
        self.raises: Exception | None = None
        self.conversations = FakeConversations(MODEL_ID)
        self.runs: list[values.RunValue] = []
        self.num_matched = 0
        self.links: list[network_values.LinkValue] = []
        self.publish = m.PublishReply(0, 0, 0, 0, 0, 60.0)
        self.reasons: list[values.ReasonValue] = []
        self.engines = [values.EngineValue("tiny", "float32", "failed", error="it broke")]
        self.settings = {"conversations.visibility": '"private"'}

    def answer(self, call: m.Call) -> Iterable[Struct]:
        if self.raises:
            raise self.raises
        told = self.conversations.answer(call)
        yield from self._about_requests(call) if told is None else told

    def _about_requests(self, call: m.Call) -> Iterable[Struct]:
        match call:
            case m.Generate():
                yield m.Progress(call.id, "prefill", 0, 1)
                for token in self.tokens:
                    yield m.Emitted(call.id, [token])
                yield self.generated(call)
            case m.Runs():
                yield m.RunsReply(call.id, self.runs)
            case m.Explain():
                tip = self.windows[-1].window if self.windows else None
                yield m.ExplainReply(call.id, self.num_matched, self.reasons, tip)
            case _:
                yield from self._about_the_node(call)

    def _about_the_node(self, call: m.Call) -> Iterable[Struct]:
        match call:
            case m.Models():
                yield m.ModelsReply(call.id, [self.model])
            case m.AddModel():
                yield m.Progress(call.id, "hashing weights", 1, 2)
                yield m.ModelsReply(call.id, [self.model])
            case m.Chain():
                if call.tip != self.tip and call.tip not in [w.window for w in self.windows]:
                    raise NotFound("no window of that name is stored")
                yield m.ChainReply(call.id, self.windows[call.start :][:2], len(self.windows))
            case m.Check():
                yield m.CheckReply(call.id, 60, self.bad, 2, self.bad)
            case m.Evict():
                yield m.EvictReply(call.id, 5 * 2**20, 7)
            case m.Status():
                tier = values.TierValue(used_bytes=2**30, cap_bytes=2**31, hits=1234)
                yield m.StatusReply(
                    call.id, "0.1.0", 7, "s", "d", 61.5, {"l0": tier, "l1": tier, "l2": tier},
                    self.engines, {"n": 1}, None, self.settings,
                )  # fmt: skip
            case m.Gc():
                yield m.Progress(call.id, "forgetting", 1, 2)
                yield m.GcReply(call.id, 2, 30 if call.unreferenced else 3, 5 * 2**20)
            case _:
                yield from self._about_what_is_shown(call)

    def _about_what_is_shown(self, call: m.Call) -> Iterable[Struct]:
        match call:
            case m.Links():
                part = self.links[call.start :][:2]
                yield m.LinksReply(call.id, part, len(self.links))
            case m.Publish():
                yield structs.replace(self.publish, id=call.id)
            case m.Withdraw():
                yield m.WithdrawReply(call.id, 4, 2)

    def generated(self, call: m.Generate) -> m.Generated:
        cached = sum((self.cached.l0, self.cached.l1, self.cached.l2, self.cached.peers))
        size = len(call.tokens)
        usage = values.UsageValue(size, len(self.tokens), self.cached, size - cached)
        name = self.conversations.record(call, self.tokens)
        return m.Generated(
            call.id, self.tokens, self.finish, self.tip, usage, 112.5, self.timings_ms,
            self.warning, name,
        )  # fmt: skip


def window(tokens: list[int], index: int, model_id: bytes = MODEL_ID) -> values.WindowValue:
    name = bytes([index]) * 32
    return values.WindowValue(
        name, 16 * index, tokens, [b"a" * 32, b"b" * 32], model_id, "native:x"
    )


class Said:
    """What a verb returned and said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        self.hint = err.splitlines()[-1] if err else ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def say(capfd: pytest.CaptureFixture[str], *words: str) -> Said:
    capfd.readouterr()
    code = main(words)
    return Said(code, *capfd.readouterr())


def sent(gliad: FakeGliad, kind: type[Any]) -> Any:
    return [call for call in gliad.calls if isinstance(call, kind)][-1]
