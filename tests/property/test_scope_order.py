"""What a scope is within: a partial order, and one that means what it says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from glia.graph.group import GroupId
from glia.graph.ids import ModelId
from glia.graph.scope import Op, Scope

GROUPS = [GroupId(bytes([number]) * 32) for number in range(2)]
MODELS = [ModelId(bytes([number]) * 32) for number in (10, 11)]
ROOTS = [bytes([number]) * 32 for number in (20, 21, 22)]
SERVERS = [bytes([number]) * 32 for number in (30, 31)]


@st.composite
def scopes(draw: st.DrawFn) -> Scope:
    """From few values, so that two often compare."""
    group = draw(st.sampled_from(GROUPS))
    return Scope(
        group=group,
        audience=draw(st.sampled_from([group, *SERVERS])),
        ops=Op(draw(st.integers(1, 7))),
        epoch=draw(st.integers(1, 2)),
        not_before_s=draw(st.integers(0, 1)),
        expires_s=draw(st.integers(10, 11)),
        model_id=draw(st.sampled_from([None, *MODELS])),
        roots=draw(st.none() | st.frozensets(st.sampled_from(ROOTS), min_size=1)),
        bytes_per_hour=draw(st.sampled_from([None, 0, 5])),
    )


@given(scopes())
def test_reflexive(one: Scope) -> None:
    assert one.is_within(one)


@settings(max_examples=200)
@given(scopes(), scopes())
def test_antisymmetric(one: Scope, two: Scope) -> None:
    assert (one.is_within(two) and two.is_within(one)) == (one == two)


@settings(max_examples=200)
@given(scopes(), st.data())
def test_transitive(one: Scope, data: st.DataObject) -> None:
    """Of scopes made narrower twice, and of any third."""
    two = data.draw(scopes().map(lambda other: narrower(one, other)))
    three = data.draw(scopes().map(lambda other: narrower(two, other)))
    assert two.is_within(one)
    assert three.is_within(two)
    assert three.is_within(one)
    other = data.draw(scopes())
    if other.is_within(three):
        assert other.is_within(one)


@settings(max_examples=200)
@given(scopes(), scopes(), st.sampled_from(Op), st.sampled_from(MODELS), st.sampled_from(ROOTS))
def test_within_allows_nothing_more(
    one: Scope, two: Scope, op: Op, model: ModelId, root: bytes
) -> None:
    less = narrower(one, two)
    if less.allows(op, model, root):
        assert one.allows(op, model, root)
    if less.allows(op, model):
        assert one.allows(op, model)


def narrower(one: Scope, other: Scope) -> Scope:
    """What both allow, or `one` where that is nothing."""
    ops = one.ops & other.ops or one.ops
    roots = one.roots if other.roots is None else (one.roots or other.roots) & other.roots
    rates = [rate for rate in (one.bytes_per_hour, other.bytes_per_hour) if rate is not None]
    return Scope(
        group=one.group,
        audience=one.audience if one.audience != one.group else _audience(one, other),
        ops=ops,
        epoch=min(one.epoch, other.epoch),
        not_before_s=max(one.not_before_s, other.not_before_s),
        expires_s=min(one.expires_s, other.expires_s),
        model_id=one.model_id or other.model_id,
        roots=roots or one.roots,
        bytes_per_hour=min(rates, default=None),
    )


def _audience(one: Scope, other: Scope) -> bytes:
    return other.audience if other.audience in SERVERS else one.group
