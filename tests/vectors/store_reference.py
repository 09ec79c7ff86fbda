"""A second reader of the store, from glia/spec/7-store.md alone. Imports nothing of glia.

`segments` is a dict from number to the file's bytes, `rows` a dict of the index.
Damage is ValueError.
"""

import struct

from blake3 import blake3


def up(num):
    return (num + 63) // 64 * 64


def check(data):
    return blake3(data).digest()[:8]


def read_segment(data, number):
    """Yields (offset, group) of a segment that nothing damaged."""
    if data[:4] != b"GSEG" or data[56:64] != check(data[:12]) or any(data[12:56]):
        raise ValueError("segment head")
    if struct.unpack("<HHI", data[4:12]) != (1, 0, number):
        raise ValueError("segment version or number")
    at = 64
    while at < len(data):
        group = read_group(data, at)
        yield at, group
        at += group["size"]


def read_group(data, at):
    head = data[at : at + 96]
    magic, version, num, num_record, zero, num_particles = struct.unpack("<4sHHIIQ", head[:24])
    if (magic, version, zero) != (b"GGRP", 1, 0):
        raise ValueError("group head")
    record_at = at + 96 + 8 * num
    table = [struct.unpack_from("<II", data, at + 96 + 8 * n) for n in range(num)]
    record = data[record_at : record_at + num_record]
    particles_at = at + up(96 + 8 * num + num_record)
    if head[88:96] != check(head[:88] + bytes(8) + data[at + 96 : record_at] + record):
        raise ValueError("group check")
    if any(data[record_at + num_record : particles_at]):
        raise ValueError("padding")
    end = particles_at + num_particles
    if any(data[end : at + up(end - at)]) or sum(length for _, length in table) != num_particles:
        raise ValueError("particle bytes")
    window = head[24:56]
    if blake3(record).digest() != window:
        raise ValueError("window id")
    ids = record_ids(record)
    blocks, where = {}, particles_at
    for ordinal, length in table:
        particle = data[where : where + length]
        if blake3(particle).digest() != ids[ordinal]:
            raise ValueError("block id")
        blocks[ids[ordinal]] = (where, length)
        where += length
    return {
        "window": window,
        "prefix": head[56:88],
        "record": record,
        "blocks": blocks,
        "size": up(end - at),
    }


def record_ids(record):
    """Block ids of a window record, 4-window.md."""
    num_tokens, num_blocks = struct.unpack_from("<HH", record, 8)
    at = 24 + 96 + 4 * num_tokens
    return [record[at + 32 * n : at + 32 * n + 32] for n in range(num_blocks)]


def listing(segments, rows):
    """Window id -> (prefix key, record, particles) of all whole windows that the index names."""
    names = {key[1:]: struct.unpack("<IQI", row) for key, row in rows.items() if key[:1] == b"b"}
    found = {}
    for key, row in rows.items():
        if key[:1] == b"w":
            window = read_window(key[1:], row, segments, names)
            if b"p" + window[0] + key[1:] not in rows:
                raise ValueError("prefix row")
            if window[2] is not None:
                found[key[1:]] = window
    return found


def read_window(name, row, segments, names):
    """(prefix key, record, particles) of a window row; particles None where it is not whole."""
    segment, offset, num_runs, num_blocks, num_record, prefix = struct.unpack("<IQHHI32s", row[:52])
    lengths_at = 52 + 14 * num_runs
    record = row[lengths_at + 4 * num_blocks :]
    ids = record_ids(record)
    if blake3(record).digest() != name or len(record) != num_record:
        raise ValueError("window row")
    if read_group(segments[segment], offset)["record"] != record:
        raise ValueError("the group is of another window")
    if not all(block in names and names[block][0] in segments for block in ids):
        return prefix, record, None
    places = [names[block] for block in ids]
    particles = [segments[where][at : at + length] for where, at, length in places]
    if [blake3(particle).digest() for particle in particles] != ids:
        raise ValueError("block row")
    return prefix, record, particles


def runs_agree(row, names):
    """Whether a window row's runs and lengths say what the block rows say."""
    num_runs, num_blocks = struct.unpack_from("<HH", row, 12)
    lengths_at = 52 + 14 * num_runs
    runs = [struct.unpack_from("<IQH", row, 52 + 14 * n) for n in range(num_runs)]
    lengths = struct.unpack_from(f"<{num_blocks}I", row, lengths_at)
    ids = record_ids(row[lengths_at + 4 * num_blocks :])
    return follow(runs, lengths) == [names[block] for block in ids]


def follow(runs, lengths):
    """Where runs say that each block lies."""
    places, lengths = [], list(lengths)
    for segment, offset, num in runs:
        for _ in range(num):
            length = lengths.pop(0)
            places.append((segment, offset, length))
            offset += length
    return places


def state_of(rows):
    """The state row as a dict."""
    fields = "version clean segment offset next_segment num_windows num_blocks index_bytes"
    return dict(zip(fields.split(), struct.unpack("<HHIQIQQQ", rows[b"state"]), strict=True))
