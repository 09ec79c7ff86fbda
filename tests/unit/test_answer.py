"""The text of an answer, as it comes and at once, is the same and holds no stop string."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glia.model.answer import AnswerStream, answer_text
from glia.model.tokenizer import Tokenizer
from tests.model_files import write_model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_model(tmp_path_factory.mktemp("answer") / "model"))


def pieces(tokenizer: Tokenizer, text: str, stop: list[str], step: int) -> list[str]:
    tokens = tokenizer.encode(text)
    stream = AnswerStream(tokenizer, stop)
    said = [stream.push(tokens[at : at + step]) for at in range(0, len(tokens), step)]
    return [*said, stream.finish()]


@given(
    text=st.text("aé€😀 xy", max_size=24),
    stop=st.lists(st.text("aé€ xy", min_size=1, max_size=3), max_size=3),
    step=st.integers(1, 5),
)
@example(text="xa y", stop=["a ", "xa y"], step=3)
def test_pieces_together_are_the_text_before_the_first_stop_string(
    tokenizer: Tokenizer, text: str, stop: list[str], step: int
) -> None:
    said = "".join(pieces(tokenizer, text, stop, step))
    assert said == answer_text(tokenizer.encode(text), stop, tokenizer)
    assert said == text[: min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))]


def test_characters_come_whole_and_as_soon_as_they_are_certain(tokenizer: Tokenizer) -> None:
    assert pieces(tokenizer, "né", [], 1) == ["n", "", "é", ""]
    assert pieces(tokenizer, "ab", ["bc"], 1) == ["a", "", "b"]
    assert pieces(tokenizer, "abcd", ["bc"], 1) == ["a", "", "", "", ""]
