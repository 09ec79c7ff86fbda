"""A real gliad for tests. Settings come as JSON.

Its engines are `tests/scripted_engine.py`, or real ones where the settings say "real_engines".
It is offline unless they say otherwise (tests/test_nothing_outside.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import daemon.session
from daemon.checkpoint_config import CheckpointConfig
from daemon.config import (
    ApiConfig,
    Config,
    ConversationsConfig,
    EngineConfig,
    HttpConfig,
    L0Config,
    L1Config,
    L2Config,
)
from daemon.engine_process import ENGINE_PROGRAM
from daemon.network_config import NetworkConfig
from daemon.node import main
from glia.errors import GliaError

_ANY_MEMORY = 2**40  # tests of other things do the same on a machine with little
ENGINE = (sys.executable, str(Path(__file__).with_name("scripted_engine.py")))


def _config(data_dir: Path, models_dir: Path, settings: dict[str, dict[str, float]]) -> Config:
    return Config(
        data_dir=data_dir,
        models_dir=models_dir,
        l0=L0Config(**settings.get("l0", {})),
        l1=L1Config(**settings.get("l1", {})),
        l2=L2Config(**settings.get("l2", {})),
        engine=EngineConfig(**{"memory_bytes": _ANY_MEMORY, **settings.get("engine", {})}),
        conversations=ConversationsConfig(**settings.get("conversations", {})),
        http=HttpConfig(**settings.get("http", {})),
        checkpoint=CheckpointConfig(**settings.get("checkpoint", {})),
        api=ApiConfig(**settings.get("api", {})),
        network=NetworkConfig(**{"enabled": False, **settings.get("network", {})}),
    )


if __name__ == "__main__":
    data_dir, models_dir, given = sys.argv[1:]
    settings = json.loads(given)
    if "session" in settings:
        daemon.session._ENDING_S = settings["session"]["ending_s"]
    program = ENGINE_PROGRAM if "real_engines" in settings else ENGINE
    try:
        sys.exit(main(_config(Path(data_dir), Path(models_dir), settings), program))
    except GliaError as error:
        print(f"{error.code}: {error.message} ({error.hint})", file=sys.stderr)
        sys.exit(error.exit_code)
