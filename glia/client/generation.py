"""Calls that continue a prompt, or ask what is known of one and what runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from glia.client.caller import Caller
from glia.errors import NotRunning, RemoteProtocolError
from glia.graph.ids import WindowId
from glia.local import messages as m
from glia.local import values

_CANCEL_POLL_S = 0.1


class GenerationCalls(Caller):
    """Requests, and the windows that they leave."""

    def generate(
        self,
        model: str,
        tokens: Sequence[int],
        *,
        max_tokens: int,
        dtype: str | None = None,
        sampling: values.SamplingValue | None = None,
        stop_tokens: Sequence[int] = (),
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        turn: values.TurnValue | None = None,
        exact: bool | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Iterator[m.Progress | m.Emitted | m.Generated]:
        """Continue a prompt: Progress and Emitted events, at last the Generated reply.

        The call is sent with the first `next`. Closing the iterator cancels.

        Args:
            turn: the conversation that this belongs to; None records an anonymous one.
            exact: use no K/V of another numerics class; None: as network.exact says.
            is_cancelled: asked several times a second. Once it says so the request is
                cancelled, and the reply has what there was of the answer.
        Raises: UnknownModel, PromptError, PoolExhausted, EngineDied, EngineFailed, Cancelled,
            UnknownConversation, ConversationBusy, BadRequest (`keep` is not the log's).
        """
        call = m.Generate(
            id=self._id(),
            model=model,
            dtype=dtype,
            tokens=list(tokens),
            max_tokens=max_tokens,
            sampling=sampling or values.SamplingValue(),
            stop_tokens=list(stop_tokens),
            stop=list(stop),
            ignore_eos=ignore_eos,
            turn=turn,
            exact=exact,
        )
        return self._generation(call, is_cancelled or (lambda: False))

    def runs(self) -> list[values.RunValue]:
        """Requests under way, and the last ones that ended; newest first."""
        return self._call(m.Runs(self._id()), m.RunsReply).runs

    def explain(
        self,
        model: str,
        tokens: Sequence[int],
        *,
        dtype: str | None = None,
        exact: bool | None = None,
        turn: values.TurnValue | None = None,
    ) -> m.ExplainReply:
        """Why a prompt is cached as far as it is, and no further.

        Args: turn: the one that would be generated; a group's windows are found by its labels.
        Raises: UnknownModel.
        """
        call = m.Explain(self._id(), model, dtype, list(tokens), exact, turn)
        return self._call(call, m.ExplainReply)

    def chain(self, tip: WindowId | bytes) -> list[values.WindowValue]:
        """The windows from genesis to `tip`, a window's id or how it begins, 4 bytes at least.

        Raises: NotFound, BadRequest where several begin so.
        """
        windows: list[values.WindowValue] = []
        while True:
            part = self._call(m.Chain(self._id(), bytes(tip), len(windows)), m.ChainReply)
            windows += part.windows
            if len(windows) >= part.total:
                return windows
            if not part.windows:
                raise RemoteProtocolError("the chain ends before its tip")

    def _generation(
        self, call: m.Generate, is_cancelled: Callable[[], bool]
    ) -> Iterator[m.Progress | m.Emitted | m.Generated]:
        self._connection.call(call)
        ended = cancelled = False
        try:
            while not ended:
                if not cancelled and is_cancelled():
                    cancelled = True
                    self._connection.call_unanswered(m.Cancel(self._id(), call.id))
                try:
                    message = self._take_generated(call.id, _CANCEL_POLL_S)
                except TimeoutError:
                    continue
                ended = isinstance(message, m.Generated)
                yield message
        except GeneratorExit:
            if not ended:
                self._connection.abandon(call.id)
                with contextlib.suppress(NotRunning):  # then it has ended already
                    self._connection.call_unanswered(m.Cancel(self._id(), call.id))
            raise

    def _take_generated(
        self, call_id: int, timeout_s: float
    ) -> m.Progress | m.Emitted | m.Generated:
        message = self._connection.take(call_id, timeout_s)
        if not isinstance(message, m.Progress | m.Emitted | m.Generated):
            raise RemoteProtocolError(f"a {type(message).__name__} answers nothing here")
        return message
