"""A second reader of traces, from glia/spec/17-trace.md alone. Imports nothing of glia."""

import struct
from itertools import pairwise

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def read(data):
    """What a trace says: a dict. ValueError for all that is none."""
    rest = memoryview(data)

    def take(num):
        nonlocal rest
        if num > len(rest):
            raise ValueError("short")
        taken, rest = bytes(rest[:num]), rest[num:]
        return taken

    def numbers(layout):
        return struct.unpack("<" + layout, take(struct.calcsize("<" + layout)))

    def text(most):
        (num,) = numbers("H")
        if num > most:
            raise ValueError("text")
        return take(num).decode()

    if take(6) != b"GTRC\1\0":
        raise ValueError("head")
    block_size, time, num_tokens, num_answers, num_windows, num_runs, proof = numbers("HQIIIII")
    said = {"block_size": block_size, "time": time, "model_id": take(32), "profile_id": take(32)}
    said["model"], said["dtype"] = text(1024), text(1024)
    said["runs"] = [(numbers("I")[0], text(256)) for _ in range(num_runs)]
    said["windows"] = [take(32) for _ in range(num_windows)]
    said["tokens"] = list(numbers(f"{num_tokens}I"))
    said["answers"] = [answer(numbers) for _ in range(num_answers)]
    signed = data[: len(data) - len(rest) + 32]
    said["neuron"], signature = take(32), take(64)
    if len(rest) or proof or not fits(said):
        raise ValueError("range")
    try:
        key = Ed25519PublicKey.from_public_bytes(said["neuron"])
        key.verify(signature, b"glia 2026 v1 trace\0" + signed)
    except InvalidSignature as error:
        raise ValueError("signature") from error
    return said


def answer(numbers):
    start, end, known, *zeros = numbers("IIBBBB")
    if known > 1 or any(zeros):
        raise ValueError("answer")
    if not known:
        return start, end, None
    temperature, top_p, top_k, seed = how = numbers("ddIQ")
    if not (0 <= temperature <= 100 and 0 < top_p <= 1 and top_k <= 2**20 and seed < 2**63):
        raise ValueError("sampler")
    if temperature == 0 and struct.pack("<ddIQ", *how) != struct.pack("<ddIQ", 0, 1, 0, 0):
        raise ValueError("greedy")
    return start, end, how


def fits(said):
    size, runs, at = said["block_size"], said["runs"], 1
    for start, end, _ in said["answers"]:
        if not at <= start < end:
            return False
        at = end
    counts, classes = [num for num, _ in runs], [name for _, name in runs]
    return (
        16 <= size <= 256
        and size % 16 == 0
        and 1 <= len(said["tokens"]) <= 2**20
        and at <= len(said["tokens"])
        and len(said["answers"]) <= 2**16
        and len(said["windows"]) * size <= len(said["tokens"])
        and sum(counts) == len(said["windows"])
        and (all(counts) or len(counts) == 1)
        and all(one != other for one, other in pairwise(classes))
        and all(name and name.isascii() and name.isprintable() for name in classes)
    )
