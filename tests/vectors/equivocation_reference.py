"""A second reader of equivocations, from 21-equivocation.md; no import of glia.

Links and window records by the other readers of these pages. Refusals are ValueError.
"""

import struct
from itertools import pairwise

from blake3 import blake3

from tests.vectors.link_reference import read_link, refuse_unless
from tests.vectors.reference import read_window


def read_statement(data, at):
    link = read_link(data[at : at + 288])
    refuse_unless(len(data) >= at + 290, "cut")
    (num,) = struct.unpack_from("<H", data, at + 288)
    refuse_unless(1 <= num <= 256, "number of records")
    at += 290
    records = []
    for _ in range(num):
        refuse_unless(len(data) >= at + 4, "cut")
        (length,) = struct.unpack_from("<I", data, at)
        refuse_unless(len(data) >= at + 4 + length, "cut")
        encoded = data[at + 4 : at + 4 + length]
        records.append((blake3(encoded).digest(), read_window(encoded)))
        at += 4 + length
    check_statement(link, records)
    return link, records, at


def check_statement(link, records):
    place = link["num_windows"] - len(records)
    _, first = records[0]
    refuse_unless(link["kind"] == "next_block" and place >= link["num_before"], "not attested")
    refuse_unless(records[-1][0] == link["tip"], "tip")
    for (before, earlier), (_, later) in pairwise(records):
        refuse_unless(later["prev"] == before, "previous")
        refuse_unless(later["position"] == earlier["position"] + len(earlier["tokens"]), "position")
        same = ("model", "profile_name")
        refuse_unless(all(later[key] == earlier[key] for key in same), "model")
    refuse_unless(place > link["num_before"] or first["prev"] == link["base"], "base")
    refuse_unless(first["position"] == place * len(first["tokens"]), "place")
    refuse_unless(first["model"] == link["model"], "model")
    refuse_unless(first["profile_name"] == link["profile"], "profile")
    refuse_unless(first["numerics_class"] == "canonical", "class")


def read_equivocation(data):
    """(signer, one window's name, the other's, the promise's key)."""
    refuse_unless(data[:8] == b"GEQV\x01\x00\x00\x00" and len(data) <= 2**24, "head")
    one, these, at = read_statement(data, 8)
    other, those, at = read_statement(data, at)
    refuse_unless(at == len(data), "bytes behind it")
    refuse_unless(one["signer"] == other["signer"], "two neurons")
    (name, first), (other_name, second) = these[0], those[0]
    for key in ("model", "profile_name", "prev", "tokens"):
        refuse_unless(first[key] == second[key], key)
    refuse_unless(name < other_name, "order")
    tokens = struct.pack(f"<{len(first['tokens'])}I", *first["tokens"])
    said = one["signer"] + first["model"] + first["profile_name"] + first["prev"] + tokens
    return one["signer"], name, other_name, blake3(said).digest()
