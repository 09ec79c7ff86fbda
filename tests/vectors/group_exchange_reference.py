"""Reads p2p/spec/group-exchange.md by the page alone; shares no code with ours.

Refusals are ValueError.
"""

from tests.vectors.encrypted_reference import alias_of
from tests.vectors.exchange_reference import _value
from tests.vectors.group_reference import epoch_of, open_sealed


def read_show(data):
    """The group and the capability that a stream begins with."""
    value, end = _value(data, 4)
    if int.from_bytes(data[:4], "big") != len(data) - 4 or end != len(data):
        raise ValueError("frame")
    if value[0] != "Show" or len(value[1]) != 32 or not 1 <= len(value[2]) <= 2048:
        raise ValueError("show")
    return value[1], value[2]


def open_link(data, epoch_key):
    """The link in a sealed one."""
    if len(data) != 373 or data[:33] != b"\1" + epoch_of(epoch_key)[0]:
        raise ValueError("head")
    return open_sealed(epoch_key, data[65:], data[33:65])


def asked_as(prefix_key, epoch_key):
    """What stands in a Find for a prefix key."""
    return alias_of(epoch_key, prefix_key)
