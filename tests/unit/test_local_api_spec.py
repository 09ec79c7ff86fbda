"""The page on the local API and the code say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import msgspec

from glia.local import messages as m
from glia.local.frames import FrameParser, decode_from_client, decode_from_daemon

PAGE = (Path(__file__).resolve().parents[2] / "daemon/spec/local-api.md").read_text()


def test_the_example_is_what_is_sent() -> None:
    example = PAGE[PAGE.index("## 7. Example") :]
    lines = re.findall(r"^(->|<-) ([0-9a-f ]+)\n +(\[.*\])", example, re.MULTILINE)
    assert len(lines) == 4
    for direction, text, said in lines:
        (frame,) = FrameParser().feed(bytes.fromhex(text))
        assert msgspec.msgpack.decode(frame) == json.loads(said)
        decode = decode_from_client if direction == "->" else decode_from_daemon
        assert type(decode(frame)).__name__ == json.loads(said)[0]


def test_every_call_is_on_the_page() -> None:
    calls = {name for name, cls in vars(m).items() if _is_kind(cls, m.Call)}
    rows = set(re.findall(r"^\| ([A-Z]\w+)", PAGE, re.MULTILINE))
    assert rows == calls


def test_every_message_can_be_sent_by_somebody() -> None:
    defined = {cls for kind in (m.Call, m.Event, m.Reply) for cls in kind.__subclasses__()}
    assert defined == {*get_args(m.ClientMessage), *get_args(m.DaemonMessage)}
    assert {cls.__name__ for cls in defined} <= set(m.__all__)


def _is_kind(cls: object, kind: type) -> bool:
    return isinstance(cls, type) and issubclass(cls, kind) and cls is not kind
