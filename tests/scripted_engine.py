"""An engine without a model, over the real API: what it does follows from its model's name.

echo     answers token + 1, seals and flushes the prompt's windows
refused  cannot use its model, and says why
broken   ends at once without a word
slow     runs until it is cancelled
silent   connects and never gets ready
mortal   kills itself when it is asked
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from glia.client import Client
from glia.errors import CapacityError
from glia.graph.ids import WindowId
from glia.local import messages as m
from glia.local import values
from tests.builders import CLASS, MODEL, TINY, make_payload

FLAGS = (
    *("socket", "model", "manifest", "dtype", "ids-cache", "convert-dir"),
    *(
        "calibrations",
        "l0-bytes",
        "staging-bytes",
        "wide-bytes",
        "threads",
        "max-running",
        "prefill-tokens",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser()
    for flag in FLAGS:
        parser.add_argument(f"--{flag}", required=True)
    args = parser.parse_args()
    assert Path(args.manifest).is_file()
    if args.model.startswith("broken"):
        return 1
    with Client.connect(args.socket, kind="engine", name=args.model) as client:
        client.send_event(m.Progress(0, "loading", 1, 2))
        if args.model.startswith("refused"):
            line = {"code": "model_refused", "message": "type xyz is not allowed", "hint": "other"}
            print(json.dumps(line), flush=True)
            return 2
        if args.model.startswith("silent"):
            client.poll(None)
        ScriptedEngine(client, args.model, args.dtype).serve()
    return 0


class ScriptedEngine:
    def __init__(self, client: Client, model: str, dtype: str) -> None:
        self.client = client
        self.model = model
        attach_id = client.attach(
            MODEL,
            TINY,
            CLASS,
            serves=model,
            dtype=dtype,
            context_tokens=4096,
            files_dir="/nowhere",
        )
        client.make_staging(64 * TINY.window_payload_bytes)
        client.send_event(m.Ready(attach_id, 1000, []))
        tier = values.TierValue(used_bytes=10, cap_bytes=1000, windows=1)
        client.send_event(m.EngineStats(attach_id, tier, 0, 0))
        self.running: dict[int, m.Run] = {}

    def serve(self) -> None:
        while True:
            call = self.client.poll(None)
            if isinstance(call, m.Run):
                self.run(call)
            elif isinstance(call, m.CancelRun):
                self.client.send_reply(m.Done(call.id))
                run = self.running.pop(call.target, None)
                if run is not None:
                    self.client.send_reply(self.answer(run, [], None, "cancelled"))
            elif isinstance(call, m.EvictL0 | m.ForgetL0):
                self.client.send_reply(m.EvictReply(call.id, 10, 1))

    def run(self, call: m.Run) -> None:
        if self.model.startswith("mortal"):
            os.kill(os.getpid(), signal.SIGKILL)
        self.client.send_event(m.Progress(call.id, "prefill", 0, len(call.tokens)))
        if self.model.startswith("slow"):
            self.running[call.id] = call
            self.client.send_event(m.Emitted(call.id, [1]))
            return
        tip = warning = None
        try:
            tip = self.seal(call.tokens)
        except CapacityError as error:
            warning = error.message
        answer = [token + 1 for token in call.tokens[: call.max_tokens]]
        for token in answer:
            self.client.send_event(m.Emitted(call.id, [token]))
        self.client.send_reply(self.answer(call, answer, tip, "length", warning))

    def seal(self, tokens: Sequence[int]) -> WindowId | None:
        size, step = TINY.block_size, TINY.window_payload_bytes
        known = self.client.match(tokens)
        names: list[WindowId] = list(known)
        for index in range(len(known), len(tokens) // size):
            self.client.staging[:step] = make_payload(step, tuple(tokens[: (index + 1) * size]))
            ticket = self.client.seal_begin(
                names[-1] if names else None,
                index * size,
                tokens[index * size : (index + 1) * size],
                0,
            )
            names += [WindowId(name) for name in self.client.seal_end(ticket).windows]
        self.client.flush(names)
        return names[-1] if names else None

    def answer(
        self,
        call: m.Run,
        tokens: list[int],
        tip: WindowId | None,
        reason: str,
        warning: str | None = None,
    ) -> m.Generated:
        usage = values.UsageValue(
            len(call.tokens), len(tokens), values.CachedValue(), len(call.tokens)
        )
        return m.Generated(call.id, tokens, reason, tip, usage, 1.0, {"prefill": 1.0}, warning)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        print(f"scripted engine: {error!r}", file=sys.stderr)
        sys.exit(0)
