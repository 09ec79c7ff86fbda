"""An engine over LocalMemory for tests: built in one line, run to the end in another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from functools import cache

import torch

from glia.engine.engine import Engine, EngineSettings
from glia.engine.finding import Checks, Finding
from glia.engine.limits import Limits
from glia.engine.outcome import Broken, Emitted, Finished, Outcome
from glia.engine.sequence import Answer, Request, Sequence
from glia.engine.testing import LocalMemory
from glia.errors import GliaError
from glia.graph.chain import prefix_keys, walk
from glia.graph.profile import Profile
from glia.kv.compute import ComputeModel
from glia.store.base import BlockStore, SealedWindow
from glia.store.memory import MemoryStore
from tests.builders import MODEL, TINY
from tests.fake_model import AddingModel


class SlowMemory(LocalMemory):
    """Names come only when they are waited for, unless `is_quick`."""

    is_quick = False

    def seal_ready(self) -> bool:
        return self.is_quick and super().seal_ready()


def make_memory(
    profile: Profile,
    numerics_class: str,
    *,
    store: BlockStore | None = None,
    arena_windows: int = 4096,
    staging_windows: int = 16,
    kind: type[LocalMemory] = SlowMemory,
) -> LocalMemory:
    return kind(
        store or MemoryStore(1 << 30),
        MODEL,
        profile,
        numerics_class,
        arena_windows=arena_windows,
        staging_windows=staging_windows,
    )


class Trusting:
    """Finds all that it is shown clean, and counts it."""

    is_calibrated = False

    def __init__(self) -> None:
        self.num_checked = self.num_audited = 0
        self.limits: Limits | None = None

    def take_limits(self, limits: Limits | None) -> None:
        self.limits = limits

    def check(
        self,
        tokens: Several[int],
        windows: Several[torch.Tensor],
        is_canonical: Several[bool],
    ) -> list[Finding]:
        num = len(windows[0])
        assert len(tokens) == num * windows[0].shape[1]
        assert len(is_canonical) == num
        self.num_checked += num
        return [Finding("clean", "rows")] * num

    def audit(
        self,
        before: Several[torch.Tensor],
        window: Several[torch.Tensor],
        tokens: Several[int],
        *,
        is_canonical: bool,
    ) -> Finding:
        self.num_audited += 1
        return Finding("clean", "all layers")


@dataclass
class Rig:
    """An engine, what it is made of, and what it has said."""

    engine: Engine
    memory: LocalMemory
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self, on_step: Callable[[], None] | None = None) -> None:
        """Step until idle; the invariants are checked after every step."""
        while not self.engine.idle:
            self.outcomes += self.engine.step()
            self.engine.check()
            if on_step is not None:
                on_step()

    def answer(self, sequence: Sequence) -> Answer:
        (answer,) = (
            o.answer for o in self.outcomes if isinstance(o, Finished) and o.sequence is sequence
        )
        return answer

    def error(self, sequence: Sequence) -> GliaError:
        (error,) = (
            o.error for o in self.outcomes if isinstance(o, Broken) and o.sequence is sequence
        )
        return error

    def emitted(self, sequence: Sequence) -> list[int]:
        return [o.token for o in self.outcomes if isinstance(o, Emitted) and o.sequence is sequence]

    def generate(self, tokens: Iterable[int], max_tokens: int = 8, **request: object) -> Answer:
        sequence = self.engine.submit(
            Request(tokens=tuple(tokens), max_tokens=max_tokens, **request)  # type: ignore[arg-type]
        )
        self.run()
        return self.answer(sequence)


@cache
def computed_elsewhere(tokens: tuple[int, ...]) -> tuple[Answer, list[SealedWindow]]:
    """What a cold engine over TINY answers, and the windows that it stores."""
    store, model = MemoryStore(1 << 30), AddingModel(TINY, 64)
    memory = make_memory(TINY, model.numerics_class, store=store)
    answer = make_rig(model, TINY, 64, memory=memory).generate(tokens)
    records = walk(answer.tip, store.get) if answer.tip else []
    keys = prefix_keys(MODEL, TINY, [token for record in records for token in record.tokens])
    return answer, [
        SealedWindow(record, key, [store.read_block(name) for name in record.blocks])
        for record, key in zip(records, keys, strict=True)
    ]


def make_rig(
    model: ComputeModel,
    profile: Profile,
    num_slots: int,
    *,
    memory: LocalMemory | None = None,
    max_running: int = 4,
    prefill_tokens: int = 64,
    eos_tokens: Iterable[int] = (),
    examiner: Checks | None = None,
) -> Rig:
    memory = memory or make_memory(profile, model.numerics_class)
    settings = EngineSettings(
        num_slots=num_slots,
        slot_bytes=profile.window_payload_bytes,
        max_running=max_running,
        prefill_tokens=prefill_tokens,
    )
    engine = Engine(
        model,
        memory,
        profile,
        settings,
        examiner=examiner or Trusting(),
        eos_tokens=eos_tokens,
        decode=lambda ids: "".join(chr(97 + i % 26) for i in ids),
    )
    return Rig(engine, memory)
