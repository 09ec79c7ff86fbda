"""What is known of each neuron: what the user says of it, and what its windows proved to be.

Pure state. Peers are dialled, neurons sign: one neuron may be behind several peers, and what
it signed comes from any. The daemon keeps one, feeds it, and writes its snapshot down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from p2p.auditing import MAX_OTHER, OTHER_AMONG, Verdict

Word = Literal["default", "own", "known", "never"]

MAX_NEURONS = 5_000


@dataclass(slots=True)
class NeuronEntry:
    """One neuron.

    Attributes:
        word: what the user says of it: own and known as a peer's trust, never: nothing that it
            attests is used; default: as its peers are.
        caught_s: when a window that it attested proved false, 0.0 where none did: then it is
            "never", unless the user says otherwise since.
        why: what that was, in words.
        num_checked: windows of its that passed the checks that each one must.
        num_refused: that did not.
        num_clean: that were computed again, and held.
        others: of those of other arithmetic the last ones, by how many had been computed again.
    """

    word: Word = "default"
    caught_s: float = 0.0
    why: str = ""
    num_checked: int = 0
    num_refused: int = 0
    num_audited: int = 0
    num_clean: int = 0
    others: list[int] = field(default_factory=list)

    @property
    def is_lowered(self) -> bool:
        """Whether too many were of other arithmetic lately."""
        is_many = len(self.others) >= MAX_OTHER
        return is_many and self.num_audited - self.others[-MAX_OTHER] < OTHER_AMONG


class Neurons:
    """At most so many: of those that the user said nothing of, and that were not caught, the
    one that was heard of first is forgotten first; then of those that were caught."""

    def __init__(self, max_neurons: int = MAX_NEURONS) -> None:
        self._max = max_neurons
        self._entries: dict[bytes, NeuronEntry] = {}

    def entry(self, neuron: bytes) -> NeuronEntry:
        """What is known of one; to be read only."""
        return self._entries.get(neuron) or NeuronEntry()

    def items(self) -> list[tuple[bytes, NeuronEntry]]:
        """All of them."""
        return list(self._entries.items())

    def said(self) -> Iterator[tuple[bytes, Word]]:
        """Those that the user, or a proof, says something of."""
        for neuron, entry in self._entries.items():
            if entry.word != "default":
                yield neuron, entry.word

    def is_never(self, neuron: bytes) -> bool:
        """Whether nothing that it attests is used."""
        return self.entry(neuron).word == "never"

    def say(self, neuron: bytes, word: Word) -> None:
        """As the user says. Default forgets what it was caught at, too."""
        if word == "default":
            self._entries.pop(neuron, None)
        else:
            self._known(neuron).word = word

    def checked(self, neuron: bytes, num_passed: int, num_refused: int) -> None:
        """Windows of its were looked at before their first use."""
        entry = self._known(neuron)
        entry.num_checked += num_passed
        entry.num_refused += num_refused

    def audited(self, neuron: bytes, verdict: Verdict) -> None:
        """A window of its was computed again."""
        entry = self._known(neuron)
        entry.num_audited += 1
        entry.num_clean += verdict == "clean"
        if verdict == "other":
            entry.others = [*entry.others, entry.num_audited][-MAX_OTHER:]

    def caught(self, neuron: bytes, why: str, now_s: float) -> None:
        """A window that it attested is false."""
        entry = self._known(neuron)
        entry.word, entry.caught_s, entry.why = "never", now_s, why
        entry.num_clean = 0

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Plain values, for a file."""
        return {neuron.hex(): asdict(entry) for neuron, entry in self._entries.items()}

    def restore(self, snapshot: Mapping[str, Mapping[str, Any]]) -> None:
        """What `snapshot` gave, in place of what is known. Raises: ValueError, of another shape."""
        known = {each.name for each in fields(NeuronEntry)}
        entries: dict[bytes, NeuronEntry] = {}
        for neuron, values in snapshot.items():
            if set(values) != known or values["word"] not in get_args(Word):
                raise ValueError(f"not an entry of a neuron: {values}")
            entries[bytes.fromhex(neuron)] = NeuronEntry(
                **{**values, "others": list(values["others"])}
            )
        self._entries = entries
        self._make_room(None)

    def _known(self, neuron: bytes) -> NeuronEntry:
        entry = self._entries.get(neuron)
        if entry is None:
            entry = self._entries[neuron] = NeuronEntry()
            self._make_room(neuron)
        return entry

    def _make_room(self, spared: bytes | None) -> None:
        while len(self._entries) > self._max:
            self._entries.pop(self._least(spared))

    def _least(self, spared: bytes | None) -> bytes:
        caught = None
        for neuron, entry in self._entries.items():
            if neuron == spared:
                continue
            if entry.word == "default":
                return neuron
            if entry.caught_s and caught is None:
                caught = neuron
        return caught or next(iter(self._entries))
