"""Requests and the engines that answer them: who waits, how long it took, who cancelled."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import trio
from msgspec import structs

from daemon.attachments import Attachments
from daemon.binding import Binding, bind
from daemon.conversations import Conversations
from daemon.engine import Engine
from daemon.engines import Engines
from daemon.link import Deliver, EngineLink
from daemon.models_registry import KnownModel, ModelsRegistry
from daemon.resolver import Prompt, Resolved, Resolver
from daemon.runs import Run, Runs
from daemon.turns import open_turn
from daemon.uses import Uses
from glia.errors import BadRequest, Cancelled, GliaError, QuotaExceeded
from glia.graph.domain import Domain
from glia.graph.ids import ModelId, WindowId
from glia.graph.manifest import CANONICAL_DTYPE, DTYPES
from glia.local.messages import AddModel, Attach, Emitted, Generate, Generated, Progress
from glia.local.values import ModelValue

_MAX_PROMPT_TOKENS = 2**21  # of all requests together; a token takes 40 bytes while it waits
_log = logging.getLogger("gliad.broker")


class Generation:
    """One Generate call on its way; `cancel` may be called at any time.

    Attributes:
        arrival_s, begun_s: when gliad had the call, and when an engine was ready for it.
        ended: set once nothing of it is to be done any more, its recording neither.
        domain: of the group that may read it; settled before it runs.
    """

    def __init__(self, call: Generate) -> None:
        self.call = call
        self.arrival_s = self.begun_s = trio.current_time()
        self.ended = trio.Event()
        self.domain: Domain | None = None
        self._waiting = trio.CancelScope()
        self._link: EngineLink | None = None
        self._run_id = 0

    def cancel(self) -> None:
        """End it: before it runs at once, afterwards as soon as the engine has."""
        if self._link is None:
            self._waiting.cancel()
        else:
            self._link.cancel(self._run_id)

    async def run(
        self,
        engine: Engine,
        deliver: Deliver,
        prepare: Callable[[Attach], Awaitable[None]],
        began: Callable[[EngineLink, int], None],
    ) -> Generated:
        """The engine's answer; ids are the engine's. Nothing is waited for once it is there.

        Args:
            prepare: is done before it runs; raises where what attached may not answer.
            began: is told the engine and its number for the run.
        Raises: Cancelled (before it ran), EngineDied, what the engine failed with.
        """
        with self._waiting:
            await trio.lowlevel.checkpoint_if_cancelled()  # it may have been cancelled long ago
            link = await engine.until_ready(deliver)
            self.begun_s = trio.current_time()
            await prepare(link.attach)
        if self._waiting.cancelled_caught:
            raise Cancelled("cancelled before it ran")
        self._link = link
        self._run_id = link.start_run(self.call, deliver, self.domain)
        began(link, self._run_id)
        return await link.finish_run(self._run_id)


class _Clock:
    """When a request's first token came, and how long all of it took.

    Attributes:
        resolved: what came of asking peers, once they were.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._first_s: float | None = None
        self.resolved = Resolved()

    def take(self, event: Progress | Emitted) -> None:
        if self._first_s is None and isinstance(event, Emitted):
            self._first_s = trio.current_time()

    def stamp(self, generated: Generated) -> Generated:
        """The answer with the call's id and times, and with what peers gave."""
        now_s, arrival_s = trio.current_time(), self._generation.arrival_s
        timings = {
            "load": (self._generation.begun_s - arrival_s) * 1000,
            **self.resolved.timings_ms,
            **generated.timings_ms,
            "total": (now_s - arrival_s) * 1000,
        }
        ttft_ms = ((self._first_s or now_s) - arrival_s) * 1000
        call_id = self._generation.call.id
        return structs.replace(
            generated,
            id=call_id,
            ttft_ms=ttft_ms,
            timings_ms=timings,
            fetched=self.resolved.value(),
            numerics_class=binding.numerics_class if (binding := self.resolved.binding) else "",
        )


class Broker:
    """Brings requests to engines."""

    def __init__(
        self,
        registry: ModelsRegistry,
        engines: Engines,
        conversations: Conversations,
        runs: Runs,
        uses: Uses,
        attachments: Attachments,
        resolver: Resolver,
        max_waiting: int,
        exact: bool,
    ) -> None:
        """Args: exact: what a request is that does not say it."""
        self._registry = registry
        self._engines = engines
        self._conversations = conversations
        self._runs = runs
        self._uses = uses
        self._attachments = attachments
        self._resolver = resolver
        self._max_waiting = max_waiting
        self._exact = exact
        self._num_tokens = 0
        self._adding: set[str] = set()

    async def generate(self, generation: Generation, deliver: Deliver) -> Generated:
        """Answer a Generate call; events go to `deliver`.

        Raises: UnknownModel, ManifestError, BadRequest, ConversationBusy, UnknownConversation,
            QuotaExceeded, Cancelled, EngineError, ModelError, PromptError, StoreBroken.
        """
        call = generation.call
        with self._weighed(len(call.tokens)), self._runs.running(call) as run:
            generated = await self._answer(generation, run, deliver)
            self._runs.answered(run, generated)
        return generated

    async def compute(self, call: Generate, model_id: ModelId, deliver: Deliver) -> Generated:
        """Have K/V of a prompt that is a conversation's already; nothing is recorded.

        Raises: UnknownModel, ManifestError, BadRequest (its model is another by now),
            QuotaExceeded, EngineError, ModelError, PromptError.
        """
        with self._runs.running(call) as run:

            def tell(event: Progress | Emitted) -> None:
                run.take(event)
                if isinstance(event, Progress):
                    deliver(structs.replace(event, id=call.id))

            async def prepare(attach: Attach) -> None:
                if attach.model_id != model_id:
                    raise BadRequest(f"{call.model} is another model by now than it was told with")

            def began(link: EngineLink, run_id: int) -> None:
                run.began(link.attach.numerics_class)

            async with self.using(call.model, call.dtype or "", len(call.tokens)) as engine:
                generated = await Generation(call).run(engine, tell, prepare, began)
            self._runs.answered(run, generated)
        return generated

    def prefill_s(self, binding: Binding, num_tokens: int) -> float | None:
        """How long computing a prompt takes, where such were computed here."""
        return self._resolver.prefill_s(binding, num_tokens)

    async def _answer(self, generation: Generation, run: Run, deliver: Deliver) -> Generated:
        """The answer, recorded in its conversation."""
        call = generation.call
        async with open_turn(self._conversations, call) as turn:
            model = await self._model_for(call.model)
            dtype = turn.dtype or call.dtype or model.manifest.dtype
            run.name(turn.name, dtype)
            is_exact = self._exact if call.exact is None else call.exact
            is_exact = is_exact or dtype == CANONICAL_DTYPE
            call = generation.call = structs.replace(call, exact=is_exact)
            engine = await self._engine_for(model, dtype)
            if (turn.num_public or turn.group) and engine.ready_link is None:
                self._resolver.expect()
            clock = _Clock(generation)

            def tell(event: Progress | Emitted) -> None:
                event = clock.resolved.heard(event)
                clock.take(event)
                run.take(event)
                turn.take(event)
                deliver(structs.replace(event, id=call.id))

            async def prepare(attach: Attach) -> None:
                turn.accept(attach)
                generation.domain = turn.domain(bind(attach).profile.block_size)
                prompt = Prompt(
                    call.tokens,
                    turn.num_public,
                    bool(call.exact),
                    turn.num_shared,
                    generation.domain,
                )
                clock.resolved = await self._resolve(bind(attach), prompt, tell)

            def began(link: EngineLink, run_id: int) -> None:
                clock.resolved.began(link, run_id)
                run.began(link.attach.numerics_class)

            try:
                with self._counted(engine):
                    generated = await generation.run(engine, tell, prepare, began)
            finally:
                with trio.CancelScope(shield=True):
                    await clock.resolved.end()
            self._resolver.learn(clock.resolved, generated)
            is_exact = await self._resolver.is_exact(
                clock.resolved, generated, required=bool(call.exact)
            )
            generated = structs.replace(generated, exact=is_exact)
            generated = await turn.commit(clock.stamp(generated))
        if generated.tip is not None:
            self._uses.add(WindowId(generated.tip))
        return generated

    async def _resolve(self, binding: Binding, prompt: Prompt, tell: Deliver) -> Resolved:
        """Have here what peers have of a prompt."""
        return await self._resolver.resolve(
            binding, prompt, lambda what, done, total: tell(Progress(0, what, done, total))
        )

    @asynccontextmanager
    async def using(self, name: str, dtype: str, num_tokens: int) -> AsyncIterator[Engine]:
        """An engine of a model, for what is no request and has so many tokens.

        Raises: UnknownModel, ManifestError, BadRequest, QuotaExceeded, CapacityError.
        """
        with self._weighed(num_tokens):
            engine = await self._engine_for(await self._model_for(name), dtype)
            with self._counted(engine):
                yield engine

    async def add_model(self, call: AddModel, deliver: Deliver) -> ModelValue:
        """Make a model known after loading it once.

        Raises: BadRequest, ManifestError, ModelError, EngineError.
        """
        if call.name in self._adding:
            raise BadRequest(f"{call.name} is being added already", hint="gliad models")
        self._adding.add(call.name)
        try:
            return await self._add_model(call, deliver)
        finally:
            self._adding.discard(call.name)

    def loaded(self, engine: Engine, link: EngineLink) -> None:
        """An engine has loaded its model: remember what it said of it."""
        if engine.known is not None:
            self._registry.remember(engine.known, link.attach)
        self._attachments.remember(link.attach, engine.known)
        self._resolver.loaded(bind(link.attach), link.tokens_per_s)

    def preload(self, names: Iterable[str]) -> None:
        """Start the engines of these models, each in its manifest's dtype, if they can be had."""
        found: list[tuple[KnownModel, str]] = []
        for name in names:
            try:
                model = self._registry.get(name)
            except GliaError as error:
                _log.warning("%s is not preloaded: %s", name, error)
                self._engines.fail(name, error)
            else:
                found.append((model, model.manifest.dtype))
        self._engines.preload(found)

    async def _model_for(self, name: str) -> KnownModel:
        """A request's model, as its manifest is now."""
        if name in self._adding:
            raise BadRequest(f"{name} is being added", hint="ask again when it is there")
        return await trio.to_thread.run_sync(self._registry.get, name)

    async def _engine_for(self, model: KnownModel, dtype: str) -> Engine:
        if dtype not in DTYPES:
            raise BadRequest(f"no dtype {dtype[:40]!r}", hint=f"one of: {', '.join(DTYPES)}")
        if self._engines.is_outdated(model):
            await self._engines.end(model.name)
        return self._engines.demand(model, dtype)

    async def _add_model(self, call: AddModel, deliver: Deliver) -> ModelValue:
        stage = partial(self._registry.stage, call.name, call.manifest, replace=call.replace)
        staged = await trio.to_thread.run_sync(stage)
        try:
            await self._engines.end(call.name)
            engine = self._engines.demand(staged, staged.manifest.dtype)
            with engine.in_use():
                await engine.until_ready(lambda e: deliver(structs.replace(e, id=call.id)))
        except BaseException:
            with trio.CancelScope(shield=True):  # else it would answer for the name
                await self._engines.end(call.name)
            self._registry.discard(staged)
            raise
        engine.known = self._registry.commit(staged)
        return await trio.to_thread.run_sync(self._registry.value, call.name)

    @contextmanager
    def _weighed(self, num_tokens: int) -> Iterator[None]:
        if self._num_tokens + num_tokens > _MAX_PROMPT_TOKENS:
            raise QuotaExceeded(
                f"requests with {self._num_tokens:,} tokens wait already", hint="ask again later"
            )
        self._num_tokens += num_tokens
        try:
            yield
        finally:
            self._num_tokens -= num_tokens

    @contextmanager
    def _counted(self, engine: Engine) -> Iterator[None]:
        if engine.num_calls >= self._max_waiting:
            raise QuotaExceeded(
                f"{engine.num_calls} requests wait for {engine.model} already",
                hint="ask again later, or raise api.max_waiting in glia.toml",
            )
        with engine.in_use():
            yield
