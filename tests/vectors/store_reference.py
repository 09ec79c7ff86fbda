"""A second reader of the store, from glia/spec/7-store.md alone. Imports nothing of glia.

`segments` is a dict from number to the file's bytes, `rows` a dict of the index.
Damage is ValueError.
"""

import struct

from blake3 import blake3

ALIGN = {1: 64, 2: 4096}


def up(num, align):
    return (num + align - 1) // align * align


def check(data):
    return blake3(data).digest()[:8]


def read_segment(data, number):
    """Yields (offset, group) of a segment that nothing damaged; what was erased is skipped."""
    magic, version, zero, said = struct.unpack("<4sHHI", data[:12])
    if data[56:64] != check(data[:12]) or any(data[12:56]):
        raise ValueError("segment head")
    if (magic, zero, said) != (b"GSEG", 0, number) or version not in ALIGN:
        raise ValueError("segment version or number")
    at = ALIGN[version]
    if any(data[64:at]):
        raise ValueError("segment head")
    while at < len(data):
        if data[at : at + 4] == b"GGRP":
            group = read_group(data, at)
            yield at, group
            at += group["size"]
        elif any(data[at : at + ALIGN[version]]):
            raise ValueError("neither a group nor erased")
        else:
            at += ALIGN[version]


def read_group(data, at, verify=True):
    head = data[at : at + 96]
    magic, version, num, num_record, zero, num_particles = struct.unpack("<4sHHIIQ", head[:24])
    if (magic, zero) != (b"GGRP", 0) or version not in ALIGN:
        raise ValueError("group head")
    record_at = at + 96 + 8 * num
    table = [struct.unpack_from("<II", data, at + 96 + 8 * n) for n in range(num)]
    record = data[record_at : record_at + num_record]
    particles_at = at + up(96 + 8 * num + num_record, 64)
    if head[88:96] != check(head[:88] + bytes(8) + data[at + 96 : record_at] + record):
        raise ValueError("group check")
    if any(data[record_at + num_record : particles_at]):
        raise ValueError("padding")
    end = particles_at + num_particles
    size = up(end - at, ALIGN[version])
    if any(data[end : at + size]) or sum(length for _, length in table) != num_particles:
        raise ValueError("particle bytes")
    window = head[24:56]
    if blake3(record).digest() != window:
        raise ValueError("window id")
    ids = record_ids(record)
    blocks, where = {}, particles_at
    for ordinal, length in table:
        particle = data[where : where + length]
        if verify and blake3(particle).digest() != ids[ordinal]:
            raise ValueError("block id")
        blocks[ids[ordinal]] = (where, length)
        where += length
    return {
        "window": window,
        "prefix": head[56:88],
        "record": record,
        "blocks": blocks,
        "size": size,
    }


def record_ids(record):
    """Block ids of a window record, 4-window.md."""
    num_tokens, num_blocks = struct.unpack_from("<HH", record, 8)
    at = 24 + 96 + 4 * num_tokens
    return [record[at + 32 * n : at + 32 * n + 32] for n in range(num_blocks)]


def record_before(record):
    """The window before."""
    return record[24 + 64 : 24 + 96]


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


def split_window(row):
    """Groups, runs, lengths, prefix key and record of a window row."""
    num_groups, num_runs, num_blocks, num_record, prefix = struct.unpack("<HHHI32s", row[:42])
    runs_at = 42 + 20 * num_groups
    lengths_at = runs_at + 14 * num_runs
    record_at = lengths_at + 4 * num_blocks
    if len(row) != record_at + num_record:
        raise ValueError("window row")
    groups = list(struct.iter_unpack("<IQQ", row[42:runs_at]))
    runs = list(struct.iter_unpack("<IQH", row[runs_at:lengths_at]))
    lengths = list(struct.unpack(f"<{num_blocks}I", row[lengths_at:record_at]))
    return groups, runs, lengths, prefix, row[record_at:]


def read_window(name, row, segments, names):
    """(prefix key, record, particles) of a window row; particles None where it is not whole."""
    groups, _, _, prefix, record = split_window(row)
    ids = record_ids(record)
    if blake3(record).digest() != name:
        raise ValueError("window row")
    for segment, offset, size in groups:
        group = read_group(segments[segment], offset, verify=False)  # one may be bad
        if (group["record"], group["size"]) != (record, size):
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
    _, runs, lengths, _, record = split_window(row)
    return follow(runs, lengths) == [names[block] for block in record_ids(record)]


def follow(runs, lengths):
    """Where runs say that each block lies."""
    places, lengths = [], list(lengths)
    for segment, offset, num in runs:
        for _ in range(num):
            length = lengths.pop(0)
            places.append((segment, offset, length))
            offset += length
    return places


def leaves(rows):
    """Windows that nothing continues, least recently used first."""
    windows = {key[1:]: split_window(row)[4] for key, row in rows.items() if key[:1] == b"w"}
    before = {record_before(record) for record in windows.values()}
    uses = {key[1:]: struct.unpack("<Q", row)[0] for key, row in rows.items() if key[:1] == b"l"}
    following = {key[1:] for key in rows if key[:1] == b"n"}
    if following != {record_before(record) + name for name, record in windows.items()}:
        raise ValueError("next rows")
    if uses.keys() != windows.keys():
        raise ValueError("last use rows")
    ordered = [
        (int.from_bytes(key[1:9], "big"), key[9:]) for key in sorted(rows) if key[:1] == b"t"
    ]
    if {(uses[name], name) for name in windows if name not in before} != set(ordered):
        raise ValueError("leaf rows")
    return [name for _, name in ordered]


def usages_agree(segments, rows):
    """Whether segment rows count the groups that are there and the blocks that were erased."""
    said = {
        int.from_bytes(key[1:], "big"): struct.unpack("<QI", row)
        for key, row in rows.items()
        if key[:1] == b"u"
    }
    groups = {number: list(read_segment(data, number)) for number, data in segments.items()}
    found = {}
    for number, data in segments.items():
        living = sum(group["size"] for _, group in groups[number])
        found[number] = (len(data) - 4096 - living, len(groups[number]))
    return said == found


def state_of(rows):
    """The state row as a dict."""
    fields = "version flags segment offset next_segment num_windows num_blocks index_bytes tick"
    return dict(zip(fields.split(), struct.unpack("<HHIQIQQQQ", rows[b"state"]), strict=True))
