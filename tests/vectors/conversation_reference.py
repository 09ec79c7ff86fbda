"""A second reader of conversations, from glia/spec/8-conversation.md alone.

Imports nothing of glia. Damage of the begin, and records that are none, are ValueError; a
tail that is not whole is left out.
"""

import struct

from blake3 import blake3


def read(data):
    """What a file says: a dict; `size` is where its whole records end."""
    version = data[4:5]
    if data[:8] != b"GCNV" + version + bytes(3) or version not in (b"\1", b"\2"):
        raise ValueError("head")
    frames = list(split(data))
    if not frames or frames[0][0] != 1:
        raise ValueError("begin")
    said = {"tokens": [], "messages": [], "tips": [], "tip": None, "origin": None}
    said.update(public=0, group=None)
    said.update(begin(frames[0][1]), size=frames[-1][2])
    said["used"] = said["created"]
    for number, (kind, body, _) in enumerate(frames[1:]):
        if kind == 3:
            apply(said, *turn(body, version == b"\2"))
        elif kind == 2 and number == 0:
            said["origin"] = origin(body)
        else:
            raise ValueError("kind")
    return said


def split(data):
    """Yields (kind, body, end) of whole records."""
    check, at = blake3(data[:8]).digest()[:16], 8
    while at + 24 <= len(data):
        length, kind, zero = struct.unpack_from("<IHH", data, at)
        body = data[at + 24 : at + 24 + length]
        check = blake3(check + data[at : at + 8] + body).digest()[:16]
        if zero or len(body) != length or check != data[at + 8 : at + 24]:
            return
        at += 24 + length
        yield kind, body, at


class Body:
    """Takes a body apart from front to back."""

    def __init__(self, data):
        self.data = data

    def take(self, num):
        if num > len(self.data):
            raise ValueError("too short")
        taken, self.data = self.data[:num], self.data[num:]
        return taken

    def numbers(self, layout):
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def text(self, layout="H"):
        return self.take(self.numbers(layout)[0]).decode()

    def end(self):
        if self.data:
            raise ValueError("too long")


def begin(data):
    body = Body(data)
    (created,) = body.numbers("Q")
    model_id = body.take(32)
    name, model, dtype = body.text(), body.text(), body.text()
    body.end()
    return {
        "created": created,
        "model_id": model_id,
        "name": name,
        "model": model,
        "dtype": dtype,
    }


def origin(data):
    body = Body(data)
    (num_tokens,) = body.numbers("I")
    name = body.text()
    body.end()
    return name, num_tokens


def turn(data, may_say_how):
    body = Body(data)
    used, keep, num_tokens, num_messages, has_tip, has_group, zeros = body.numbers("QIIIBBH")
    tip = body.take(32)
    if has_tip > 1 or has_group > may_say_how or zeros or (any(tip) and not has_tip):
        raise ValueError("turn")
    group = body.take(32) if has_group else None
    tokens = list(body.numbers(f"{num_tokens}I"))
    messages = [message(body, may_say_how) for _ in range(num_messages)]
    body.end()
    if has_group and all(said["label"] != 2 for said in messages):
        raise ValueError("a group of nothing")
    return used, keep, tokens, messages, tip if has_tip else None, group


def message(body, may_say_how):
    start, end, label, has_text, has_how, zero = body.numbers("IIBBBB")
    if label not in (1, 2, 3) or has_text > 1 or has_how > may_say_how or zero:
        raise ValueError("message")
    how = sampling(body) if has_how else None
    role = body.text()
    text = body.text("I") if has_text else None
    return {"role": role, "text": text, "start": start, "end": end, "label": label, "how": how}


def sampling(body):
    raw = body.data[:28]
    temperature, top_p, top_k, seed = body.numbers("ddIQ")
    if not (0 <= temperature <= 100 and 0 < top_p <= 1 and top_k <= 2**20 and seed < 2**63):
        raise ValueError("sampling")
    if temperature == 0 and raw != struct.pack("<ddIQ", 0.0, 1.0, 0, 0):
        raise ValueError("greedy")
    return temperature, top_p, top_k, seed


def apply(said, used, keep, tokens, messages, tip, group):
    if keep > len(said["tokens"]):
        raise ValueError("keep")
    if keep <= said["public"]:
        said["public"], said["group"] = keep, group
        for new in messages:
            if new["label"] != 1:
                break
            said["public"] = new["end"]
    kept = []
    for old in said["messages"]:
        if old["end"] <= keep:
            kept.append(old)
        elif old["start"] < keep:
            kept.append({**old, "end": keep, "text": None})
    said["tokens"] = said["tokens"][:keep] + tokens
    said["messages"] = kept + messages
    said["used"], said["tip"] = used, tip
    if tip is not None and said["tips"][-1:] != [tip]:
        said["tips"].append(tip)
