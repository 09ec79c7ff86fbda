"""Conversations by SmolLM2's own template and tokenizer, whatever is said in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glia.local.values import MessageValue
from glia.model.chat import ChatTemplate
from glia.model.tokenizer import Tokenizer
from glia.model.turns import message_text, next_prompt

MODEL = Path(__file__).parents[2] / "models" / "smollm2"

# Not all bytes are in this vocabulary; and a mark of the template in a text is a token of its
# own, which decoding leaves out.
alphabet = st.characters(
    max_codepoint=0x1FFFF, exclude_categories=["Cs", "Cn", "Cc"], include_characters="\n\t"
)
texts = st.text(alphabet, max_size=30).filter(
    lambda text: "<|" not in text and "\ufffd" not in text
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(MODEL)


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    found = ChatTemplate.load(MODEL)
    assert found is not None
    return found


@given(
    st.booleans(),
    st.lists(st.tuples(texts, texts, st.booleans(), st.integers(1, 9)), min_size=5, max_size=5),
)
def test_no_turn_loses_what_was_computed_and_spans_say_the_texts(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    has_system: bool,
    turns: list[tuple[str, str, bool, int]],
) -> None:
    log: list[int] = []
    messages: list[MessageValue] = []
    expected: list[str] = []
    for question, answer, is_whole, step in turns:
        new = [{"role": "user", "content": question}]
        if has_system and not log:
            new.insert(0, {"role": "system", "content": "Be brief."})
            expected.append("Be brief.")
        prompt = next_prompt(template, tokenizer, log, messages, new)
        assert prompt.tokens[: len(log)] == log
        assert prompt.keep == len(log)
        messages += [MessageValue(m.role, m.content, m.start, m.end) for m in prompt.messages]
        # As a model may sample it: not as the tokenizer would encode it.
        sampled = [
            token
            for at in range(0, len(answer), step)
            for token in tokenizer.encode(answer[at : at + step])
        ]
        log = [*prompt.tokens, *sampled, *(tokenizer.eos_ids[:1] if is_whole else ())]
        messages.append(MessageValue("assistant", None, len(prompt.tokens), len(log)))
        expected += [question, answer]
    assert [message_text(tokenizer, log, m) for m in messages] == expected
    shown = [tokenizer.decode(log[m.start : m.end]) for m in messages]
    assert all(text in said for text, said in zip(expected, shown, strict=True))
