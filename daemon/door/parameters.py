"""The fields of OpenAI's requests that are not served: refused, or of no account here.

What would change the answer if it were ignored is refused, unless it has the value that
changes nothing. Fields that nobody here knows are refused, too: they might.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from glia.errors import BadField

# They change nothing that is promised: who asks, where it is kept, how fast or dear it is.
IGNORED = frozenset(
    (
        *("metadata", "parallel_tool_calls", "prediction", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "safety_identifier"),
        *("service_tier", "store", "user"),
    )
)

_NOTHING: tuple[Any, ...] = (None, False, [], {})

# the values that change nothing
REFUSED: dict[str, tuple[Any, ...]] = {
    "audio": _NOTHING,
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0),
    "function_call": (None, "none"),
    "functions": _NOTHING,
    "logit_bias": _NOTHING,
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "moderation": _NOTHING,
    "n": (None, 1),
    "presence_penalty": (None, 0),
    "reasoning_effort": (None,),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": _NOTHING,
    "top_logprobs": (None, 0),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}
_SMALL_BYTES = 256  # no value that changes nothing is longer


def check_parameters(fields: Mapping[str, msgspec.Raw], served: Container[str]) -> None:
    """See that no field asks for what is not done here.

    Args:
        fields: of the request's object.
        served: those that the request's own parser reads.
    Raises: BadField.
    """
    for name, raw in fields.items():
        if name in served or name in IGNORED:
            continue
        if name not in REFUSED:
            raise BadField(
                f"no parameter is called {name[:80]!r}",
                field=name[:80],
                reason="unknown_parameter",
            )
        if not _is_one_of(raw, REFUSED[name]):
            raise BadField(
                f"{name} is not supported here", field=name, reason="unsupported_parameter"
            )


def _is_one_of(raw: msgspec.Raw, values: tuple[Any, ...]) -> bool:
    data = bytes(raw)
    if len(data) > _SMALL_BYTES:
        return False
    value = msgspec.json.decode(data)
    # True == 1 and False == 0 in Python, and not in JSON.
    return any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in values)
