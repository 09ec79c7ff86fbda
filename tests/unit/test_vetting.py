"""Windows of peers in the engine: looked at before their first use, and left out if they fail."""

from __future__ import annotations

from collections.abc import Sequence as Several

import pytest
import torch

from glia.engine.finding import Finding
from glia.engine.memory import Examined
from glia.engine.sequence import Answer, Request
from glia.graph.ids import WindowId
from tests.builders import TINY
from tests.engine_parts import Rig, Trusting, computed_elsewhere, make_memory, make_rig
from tests.fake_model import AddingModel

TOKENS = tuple((5 * at + 1) % 97 for at in range(100))
NUM = 6  # whole windows before the last token
BAD = Finding("false", "layer 0")


class Strict(Trusting):
    """Finds windows of some first tokens bad; audits find bad what `audits` names."""

    def __init__(self, bad: Several[int] = (), audits: Several[int] = ()) -> None:
        super().__init__()
        self._bad = {TOKENS[16 * at] for at in bad}
        self._bad_audits = {TOKENS[16 * at] for at in audits}
        self.befores: list[int] = []
        self.canonical: list[bool] = []

    def check(
        self,
        tokens: Several[int],
        windows: Several[torch.Tensor],
        is_canonical: Several[bool],
    ) -> list[Finding]:
        found = super().check(tokens, windows, is_canonical)
        self.canonical += is_canonical
        firsts = tokens[::16]
        return [BAD if first in self._bad else f for first, f in zip(firsts, found, strict=True)]

    def audit(
        self,
        before: Several[torch.Tensor],
        window: Several[torch.Tensor],
        tokens: Several[int],
        *,
        is_canonical: bool,
    ) -> Finding:
        super().audit(before, window, tokens, is_canonical=is_canonical)
        self.befores.append(len(before[0]) if before else 0)
        return BAD if tokens[0] in self._bad_audits else Finding("clean", "all layers")


def of_a_peer(examiner: Trusting, **kind: bool) -> tuple[Rig, list[WindowId], Answer]:
    """A rig over a store that has all of TOKENS from a peer; what a cold one answers."""
    cold, windows = computed_elsewhere(TOKENS)
    memory = make_memory(TINY, AddingModel(TINY, 1).numerics_class)
    rig = make_rig(AddingModel(TINY, 64), TINY, 64, memory=memory, examiner=examiner)
    memory._store.put(windows)
    names = [window.record.window_id for window in windows]
    memory.doubt(names, **kind)
    return rig, names, cold


def test_each_is_looked_at_once() -> None:
    examiner = Trusting()
    rig, names, cold = of_a_peer(examiner)
    answer = rig.generate(TOKENS)
    assert (answer.tokens, answer.usage.computed) == (cold.tokens, 100 - NUM * 16)
    assert examiner.num_checked == NUM
    assert [each.window_id for each in rig.memory.found] == names[:NUM]
    rig.engine.evict_l0()
    rig.generate(TOKENS)
    assert examiner.num_checked == NUM
    assert answer.timings_ms["check"] > 0


def test_what_is_canonical_is_held_to_that() -> None:
    examiner = Strict()
    rig, _, _ = of_a_peer(examiner, canonical=True)
    rig.generate(TOKENS)
    assert examiner.canonical == [True] * NUM


@pytest.mark.spec(44)
@pytest.mark.parametrize("bad", range(NUM))
def test_one_that_fails_is_not_used_nor_what_follows_it(bad: int) -> None:
    rig, names, cold = of_a_peer(Strict([bad]))
    answer = rig.generate(TOKENS)
    assert answer.tokens == cold.tokens
    assert answer.usage.computed == 100 - bad * 16
    assert rig.memory.found[-1] == Examined(names[bad], BAD, is_audit=False)
    assert [each.finding.is_clean for each in rig.memory.found] == [True] * bad + [False]
    rig.engine.evict_l0()
    again = rig.generate(TOKENS)
    assert again.tokens == cold.tokens
    assert answer.tip is not None


def test_what_is_asked_for_is_computed_again_before_it_is_used() -> None:
    examiner = Strict()
    rig, names, cold = of_a_peer(examiner)
    rig.memory.audits = {names[0], names[4]}
    answer = rig.generate(TOKENS)
    assert answer.tokens == cold.tokens
    assert examiner.befores == [0, 4]
    assert answer.usage.computed == 100 - NUM * 16
    assert rig.memory.num_leases == 0


@pytest.mark.spec(44)
def test_one_that_proves_false_then_is_not_used() -> None:
    examiner = Strict(audits=[2])
    rig, names, cold = of_a_peer(examiner)
    rig.memory.audits = {names[0], names[2], names[4]}
    answer = rig.generate(TOKENS)
    assert (answer.tokens, answer.usage.computed) == (cold.tokens, 100 - 2 * 16)
    assert examiner.befores == [0, 2]  # what follows it is of no use any more
    told = [(each.window_id, each.finding.is_clean) for each in rig.memory.found if each.is_audit]
    assert told == [(names[0], True), (names[2], False)]


def test_where_one_goes_before_it_is_computed_again_all_is_computed() -> None:
    """It was forgotten, or condemned: that fails nobody's answer."""
    rig, names, cold = of_a_peer(Strict())
    rig.memory.audits = {names[4]}
    examined = rig.memory.examined

    def and_one_goes(found: Several[Examined]) -> list[WindowId]:
        asked = examined(found)
        rig.memory.forget(names[1:2])
        return asked

    rig.memory.examined = and_one_goes  # type: ignore[method-assign]
    answer = rig.generate(TOKENS)
    assert (answer.tokens, answer.usage.computed) == (cold.tokens, 100)
    assert "is here no more" in str(answer.warning)
    assert rig.memory.num_leases == 0


def test_what_is_met_while_computing_is_looked_at_too() -> None:
    cold, windows = computed_elsewhere(TOKENS)
    examiner = Strict([4])
    memory = make_memory(TINY, AddingModel(TINY, 1).numerics_class)
    rig = make_rig(
        AddingModel(TINY, 64), TINY, 64, memory=memory, examiner=examiner, prefill_tokens=16
    )
    sequence = rig.engine.submit(Request(tokens=TOKENS, max_tokens=8))
    memory.bring(windows[2:NUM])
    rig.engine.meet(sequence, 32)
    rig.run()
    answer = rig.answer(sequence)
    assert (answer.tokens, answer.usage.peers) == (cold.tokens, 2 * 16)
    assert [each.finding.is_clean for each in memory.found] == [True, True, False]


def test_an_audit_by_name_reads_the_chain_and_gives_it_back() -> None:
    examiner = Strict(audits=[3])
    rig, names, _ = of_a_peer(examiner)
    assert rig.engine.audit(names[:3], TOKENS[32:48], is_canonical=False).is_clean
    assert not rig.engine.audit(names[:4], TOKENS[48:64], is_canonical=False).is_clean
    assert rig.memory.num_leases == 0
