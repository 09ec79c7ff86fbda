"""What one client does to the node: turns, forks, forgets, cancels, evictions, hanging up."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from glia.client import Client
from glia.errors import (
    BadRequest,
    Cancelled,
    CapacityError,
    ConversationBusy,
    GliaError,
    NotFound,
    UnknownConversation,
)
from glia.local import messages as m
from glia.local import values
from simulations.soak.world import Subject

_NAMES = tuple(f"talk-{number}" for number in range(10))
_LONGEST = 1200  # tokens; a conversation that is longer is forgotten
_REFUSALS = (BadRequest, Cancelled, CapacityError, ConversationBusy, UnknownConversation, NotFound)
_WEIGHTS = {
    "turn": 10,
    "anonymous": 6,
    "fork": 3,
    "forget": 2,
    "cancel": 3,
    "hang_up": 2,
    "read": 3,
    "explain": 2,
    "evict": 1,
    "gc": 0.3,
    "check": 0.2,
    "post": 3,
}


class Actor:
    """A client with a mind of its own, by its seed.

    Attributes:
        counts: what it did, what was refused, and what failed for no good reason.
        failures: those, in words.
    """

    def __init__(self, data_dir: Path, subject: Subject, door: str, seed: int) -> None:
        self._data_dir = data_dir
        self._subject = subject
        self._door = door
        self._rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def play(self, end_s: float) -> None:
        """One thing after another until then."""
        acts: dict[str, Callable[[Client], None]] = {
            name: getattr(self, f"_{name}") for name in _WEIGHTS if name != "post" or self._door
        }
        weights = [_WEIGHTS[name] for name in acts]
        while time.monotonic() < end_s:
            name = self._rng.choices(list(acts), weights)[0]
            try:
                with Client.connect(self._data_dir) as client:
                    acts[name](client)
            except _REFUSALS as error:
                self.counts[f"{name} refused ({error.code})"] += 1
            except (GliaError, OSError, ValueError, http.client.HTTPException) as error:
                self.counts["failed"] += 1
                self.failures.append(f"{name}: {type(error).__name__}: {error}")
            else:
                self.counts[name] += 1

    def _prompt(self, most: int) -> list[int]:
        """Often with a beginning that others had, too."""
        text = self._subject.text
        start = 4096 * self._rng.randrange(3)
        shared = text[start : start + 16 * self._rng.randrange(1, most // 16)]
        own = self._rng.randrange(len(text) - 200)
        return shared + text[own : own + self._rng.randrange(1, 100)]

    def _generate(
        self, client: Client, tokens: list[int], turn: values.TurnValue | None = None
    ) -> None:
        max_tokens = self._rng.randrange(1, 24)
        events = client.generate(
            self._subject.model, tokens, max_tokens=max_tokens, ignore_eos=True, turn=turn
        )
        *_, last = events
        if isinstance(last, m.Generated) and last.warning:
            self.counts["warned"] += 1

    def _anonymous(self, client: Client) -> None:
        is_long = self._rng.random() < 0.1
        self._generate(client, self._prompt(self._subject.long_tokens if is_long else 400))

    def _turn(self, client: Client) -> None:
        name = self._rng.choice(_NAMES)
        try:
            log = list(client.conversation(name).tokens)
        except UnknownConversation:
            log = []
        tokens = log + self._prompt(128)
        said = values.MessageValue("", None, len(log), len(tokens))
        self._generate(client, tokens, values.TurnValue(name, len(log), [said]))
        if len(tokens) > _LONGEST:
            client.forget(name)

    def _fork(self, client: Client) -> None:
        taken = {about.name for about in client.conversations()}
        name, new = self._rng.sample(_NAMES, 2)
        num_tokens = client.conversation(name).about.num_tokens
        if new in taken:
            client.forget(new)
        client.fork(name, new, self._rng.randrange(num_tokens + 1))

    def _forget(self, client: Client) -> None:
        client.forget(self._rng.choice(_NAMES))

    def _started(self, client: Client) -> None:
        """Go as far as somewhere in an answer."""
        tokens = self._prompt(400)
        events = client.generate(self._subject.model, tokens, max_tokens=200, ignore_eos=True)
        for _ in range(self._rng.randrange(1, 6)):
            next(events, None)
        if self._rng.random() < 0.5:
            events.close()  # type: ignore[attr-defined]  # a generator: closing cancels

    def _cancel(self, client: Client) -> None:
        self._started(client)
        client.status()

    def _hang_up(self, client: Client) -> None:
        self._started(client)
        client.close()

    def _read(self, client: Client) -> None:
        client.conversations()
        client.runs()
        client.status()

    def _explain(self, client: Client) -> None:
        client.explain(self._subject.model, self._prompt(400))

    def _evict(self, client: Client) -> None:
        client.evict(self._rng.choice(("l0", "l1")))

    def _gc(self, client: Client) -> None:
        client.gc(unreferenced=self._rng.random() < 0.3)

    def _check(self, client: Client) -> None:
        reply = client.check()
        if reply.bad or reply.bad_windows or reply.l1_bad:
            raise ValueError(f"check found {reply}")

    def _post(self, _client: Client) -> None:
        host, _, port = self._door.rpartition(":")
        key = (self._data_dir / "http.key").read_text().strip()
        connection = http.client.HTTPConnection(host, int(port), timeout=120)
        body = {"model": self._subject.model, "prompt": self._prompt(128), "max_tokens": 8}
        try:
            connection.request(
                "POST", "/v1/completions", json.dumps(body),
                {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
            )  # fmt: skip
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        if answer.status not in (200, 429, 503):
            raise ValueError(f"the door answered {answer.status}")
