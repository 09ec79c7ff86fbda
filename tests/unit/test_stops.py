"""When an answer ends."""

from __future__ import annotations

from collections.abc import Sequence

from glia.engine.stops import Stops

BYTES = bytes(range(256))


def decode(ids: Sequence[int]) -> str:
    """Ids are bytes of UTF-8."""
    return bytes(ids).decode(errors="replace")


def end(stops: Stops, text: str) -> int | None:
    """After how many tokens the answer ends."""
    data = list(text.encode())
    return next((n for n in range(1, len(data) + 1) if stops.reached(data[:n])), None)


def test_stop_tokens_end_it_at_once() -> None:
    stops = Stops([10, 33], [], decode)
    assert end(stops, "one\ntwo") == 4
    assert end(stops, "one!") == 4
    assert end(stops, "one two") is None


def test_stop_strings_end_it_with_their_last_token() -> None:
    stops = Stops([], ["END", "stop here"], decode)
    assert end(stops, "x" * 300 + "END more") == 303
    assert end(stops, "stop" + " here") == 9
    assert end(stops, "EN D") is None


def test_a_stop_string_of_many_bytes_is_found() -> None:
    word = "ÄÖÜ" * 40
    assert end(Stops([], [word], decode), "ab" * 50 + word) == 100 + len(word.encode())


def test_the_prompt_is_not_searched_and_no_text_is_made_without_strings() -> None:
    def never(ids: Sequence[int]) -> str:
        raise AssertionError("decoded for nothing")

    assert not Stops([5], [], never).reached([1, 2, 3])
    assert Stops([5], ["x"], never).reached([5])
