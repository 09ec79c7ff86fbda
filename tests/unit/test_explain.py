"""Why a prompt is cached as far as it is: each reason on real parts, and nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from daemon.attachments import Attachments
from daemon.config import Config
from daemon.conversations import Conversations
from daemon.data_dir import prepare
from daemon.explaining import explain
from daemon.memory import Memory
from daemon.models_registry import ModelsRegistry
from daemon.network_config import NetworkConfig
from daemon.paths import Paths
from glia.errors import BadRequest, UnknownModel
from glia.graph.ids import ModelId
from glia.graph.neuron import NeuronId
from glia.local import messages as m
from glia.local import values
from glia.store.published import Published
from tests.builders import CLASS, MODEL, TINY, Chain, make_chain, make_profile, make_tokens
from tests.conversation_parts import opened, talk, turn_of
from tests.node_parts import MIB
from tests.store_parts import sealed
from tests.unit.test_writer import MoodyStore, memory_of

OTHER = ModelId(bytes(31) + b"o")
Reason = values.ReasonValue
SIZE = TINY.block_size


def attach_of(
    model_id: ModelId = MODEL, numerics_class: str = CLASS, block_size: int = 16
) -> m.Attach:
    shapes = [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers]
    profile = values.ProfileValue(block_size, TINY.scheme, TINY.mode, shapes)
    return m.Attach(1, model_id, profile, numerics_class, serves="echo", dtype="float32")


@dataclass
class Rig:
    memory: Memory
    store: MoodyStore
    conversations: Conversations
    attachments: Attachments
    registry: ModelsRegistry
    config: Config
    peering: object = None

    async def say(
        self, name: str, tokens: Sequence[int], answer: Sequence[int] = (7,), **attach: object
    ) -> None:
        attached = attach_of(**attach)  # type: ignore[arg-type]
        await talk(self.conversations, tokens, answer, turn_of(name), attach=attached)

    async def explain(
        self, tokens: Sequence[int], dtype: str | None = "float32", exact: bool | None = None
    ) -> m.ExplainReply:
        call = m.Explain(3, "echo", dtype, list(tokens), exact)
        return await explain(self, call)  # type: ignore[arg-type]


@asynccontextmanager
async def rig_of(tmp_path: Path) -> AsyncIterator[Rig]:
    paths, models_dir = Paths(tmp_path / "node"), tmp_path / "models"
    models_dir.mkdir()
    prepare(paths)
    (models_dir / "echo.model").write_text('source = "files"\n')
    conversations = opened(paths.conversations)
    attachments = Attachments(paths.attachments)
    registry = ModelsRegistry(paths, models_dir)
    async with memory_of(tmp_path, MIB) as (memory, store):
        config = Config(paths.data_dir, models_dir)
        yield Rig(memory, store, conversations, attachments, registry, config)


def run_with(tmp_path: Path, body: Callable[[Rig], Awaitable[None]], *attached: m.Attach) -> None:
    async def main() -> None:
        async with rig_of(tmp_path) as rig:
            for attach in attached or (attach_of(),):
                rig.attachments.remember(attach, None)
            await body(rig)

    trio.run(main)


def chain_of(tokens: Sequence[int], **how: object) -> Chain:
    size = SIZE if "profile" not in how else how["profile"].block_size  # type: ignore[attr-defined]
    whole = len(tokens) // size
    return make_chain(whole, tokens=tokens[: whole * size], **how)  # type: ignore[arg-type]


TOKENS = make_tokens(70)


def test_all_that_can_be_is_cached(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chain = chain_of(TOKENS)
        rig.store.put(sealed(chain))
        for length in (65, 66, 70):
            reply = await rig.explain(TOKENS[:length])
            assert (reply.num_matched, reply.tip) == (64, chain.tip)
            assert reply.reasons == [Reason("last", 64)]
        reply = await rig.explain(TOKENS[:64])  # whole windows: the last one must be computed
        assert (reply.num_matched, reply.reasons) == (48, [Reason("last", 48)])
        reply = await rig.explain(TOKENS[:3])
        assert (reply.num_matched, reply.tip, reply.reasons) == (0, None, [Reason("last", 0)])

    run_with(tmp_path, body)


def test_the_first_differing_token_and_where_it_was_seen(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        rig.store.put(sealed(chain_of(TOKENS)))
        await rig.say("older", TOKENS[:40])
        await rig.say("likest", TOKENS)
        await rig.say("newest", TOKENS[:20])
        asked = [*TOKENS[:37], 5, *TOKENS[38:]]
        reply = await rig.explain(asked)
        assert reply.num_matched == 32
        assert reply.reasons == [Reason("differs", 37, "likest", TOKENS[37], 5)]
        longer = [*TOKENS, 7, 8, *range(40)]  # it ends where the prompt goes on
        rig.store.put(sealed(chain_of(longer[:64])))
        reply = await rig.explain(longer)
        assert (reply.num_matched, reply.reasons) == (64, [Reason("differs", 71, "likest", -1, 8)])

    run_with(tmp_path, body)


def test_new_where_nothing_begins_like_it(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        await rig.say("other", make_tokens(40, seed=9))
        assert (await rig.explain(TOKENS)).reasons == [Reason("new", 0)]
        rig.store.put(sealed(chain_of(TOKENS[:32])))
        reply = await rig.explain(TOKENS)
        assert (reply.num_matched, reply.reasons) == (32, [Reason("new", 32)])

    run_with(tmp_path, body)


def test_evicted_where_a_conversation_goes_on_and_its_windows_are_gone(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chain = chain_of(TOKENS)
        rig.store.put(sealed(chain, range(2)))
        await rig.say("mine", TOKENS)
        reply = await rig.explain(TOKENS)
        assert (reply.num_matched, reply.tip) == (32, chain.window_ids[1])
        assert reply.reasons == [Reason("evicted", 32, "mine")]
        reply = await rig.explain([*TOKENS[:60], 1, *range(20)])
        assert reply.reasons == [
            Reason("evicted", 32, "mine"),
            Reason("differs", 60, "mine", TOKENS[60], 1),
        ]

    run_with(tmp_path, body)


def test_quarantined_where_the_store_has_set_it_aside(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chain = chain_of(TOKENS)
        rig.store.put(sealed(chain))
        segment = next((tmp_path / "store" / "segments").glob("*.seg"))
        data = segment.read_bytes()
        at = data.index(chain.particles[2][0])
        segment.write_bytes(data[:at] + bytes(64) + data[at + 64 :])
        assert rig.store.check().bad
        await rig.say("mine", TOKENS)
        reply = await rig.explain(TOKENS)
        assert reply.num_matched == 32
        assert reply.reasons[0].kind in ("quarantined", "evicted")

    run_with(tmp_path, body)


def test_condemned_windows_say_whose_fault_that_is(tmp_path: Path) -> None:
    by = NeuronId(bytes(32))

    async def body(rig: Rig) -> None:
        chain = chain_of(TOKENS)
        rig.store.put(sealed(chain))
        published = Published(tmp_path / "published")
        rig.peering = SimpleNamespace(published=published)
        name = chain.window_ids[2]
        rig.memory.hidden.condemn([name])

        async def why() -> list[Reason]:
            reply = await rig.explain(TOKENS)
            assert reply.num_matched == 32
            return reply.reasons

        published.foreign.put_aside([name], by)
        assert await why() == [Reason("quarantined", 32, detail="never")]
        published.foreign.condemn([name], None)
        assert await why() == [Reason("quarantined", 32, detail="differs")]
        published.foreign.condemn([name], by)
        assert await why() == [Reason("quarantined", 32, detail="attested")]
        rig.peering = None
        assert await why() == [Reason("quarantined", 32, detail="differs")]
        published.close()

    run_with(tmp_path, body)


def test_another_class(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        own = chain_of(TOKENS[:32])
        rig.store.put([*sealed(own), *sealed(chain_of(TOKENS, numerics_class="native:old"))])
        await rig.say("mine", TOKENS)
        reply = await rig.explain(TOKENS, exact=True)
        assert reply.num_matched == 32
        assert reply.reasons == [Reason("class", 32, detail="native:old")]
        assert (await rig.explain(TOKENS)).num_matched == 64
        rig.config = replace(rig.config, network=NetworkConfig(exact="required"))
        assert (await rig.explain(TOKENS)).num_matched == 32
        assert (await rig.explain(TOKENS, exact=False)).num_matched == 64

    run_with(tmp_path, body)


def test_another_profile(tmp_path: Path) -> None:
    wide = make_profile(block_size=32)

    async def body(rig: Rig) -> None:
        rig.store.put(sealed(chain_of(TOKENS, profile=wide)))
        reply = await rig.explain(TOKENS)
        assert reply.reasons == [Reason("profile", 0, detail="block_size 32, f16")]
        rig.store.put(sealed(chain_of(TOKENS[:48])))
        reply = await rig.explain(TOKENS)
        assert (reply.num_matched, reply.reasons[0].position) == (48, 48)
        assert reply.reasons[0].kind == "profile"

    run_with(tmp_path, body, attach_of(block_size=32), attach_of())


def test_another_model(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        rig.store.put(sealed(chain_of(TOKENS, model_id=OTHER)))
        reply = await rig.explain(TOKENS)
        assert reply.reasons == [Reason("model", 0, detail=OTHER.hex())]
        await rig.say("theirs", TOKENS, model_id=OTHER)
        reply = await rig.explain(TOKENS)
        assert reply.reasons == [Reason("model", 0, "theirs", detail=OTHER.hex())]

    run_with(tmp_path, body, attach_of(OTHER), attach_of())


def test_a_model_that_was_never_loaded_here(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        rig.attachments = Attachments(tmp_path / "none.json")
        assert (await rig.explain(TOKENS)).reasons == [Reason("new", 0)]
        await rig.say("mine", TOKENS)
        reply = await rig.explain([*TOKENS[:20], 1])
        assert reply.reasons == [Reason("differs", 20, "mine", TOKENS[20], 1)]
        with pytest.raises(BadRequest, match="no dtype"):
            await rig.explain(TOKENS, "float7")
        with pytest.raises(UnknownModel):
            await explain(rig, m.Explain(1, "nobody", None, [1]))  # type: ignore[arg-type]

    run_with(tmp_path, body)


def test_conversations_used_last_are_compared_and_damaged_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.explaining._MOST", 2)

    async def body(rig: Rig) -> None:
        for name, length in (("old", 40), ("new", 30), ("newest", 20)):
            await rig.say(name, TOKENS[:length])
        reply = await rig.explain(TOKENS)
        assert [reason.conversation for reason in reply.reasons] == ["new", "new"]
        path = tmp_path / "node" / "conversations" / "new.conv"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        reply = await rig.explain(TOKENS)
        assert [reason.conversation for reason in reply.reasons] == ["newest", "newest"]

    run_with(tmp_path, body)


@pytest.mark.spec(66)
def test_explaining_changes_nothing(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chains = [chain_of(TOKENS), make_chain(3, seed=4)]
        for chain in chains:
            rig.store.put(sealed(chain))
        await rig.say("mine", TOKENS)
        binding = SimpleNamespace()
        del binding
        before = (rig.memory.table.names(), rig.store.stats(), dict(rig.memory.records._kept))
        loaded: list[object] = []
        rig.store.load = lambda *a: loaded.append(a)  # type: ignore[method-assign,assignment,return-value]
        rig.store.touch = lambda *a: loaded.append(a)  # type: ignore[method-assign,assignment,return-value]
        for asked in (TOKENS, TOKENS[:20], make_tokens(50, seed=3)):
            await rig.explain(asked)
        assert before == (
            *(rig.memory.table.names(), rig.store.stats(), dict(rig.memory.records._kept)),
        )
        assert loaded == []

    run_with(tmp_path, body)
