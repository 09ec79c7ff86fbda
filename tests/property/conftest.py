"""Property tests are repeatable: same examples each run, nothing kept on disk.

GLIA_FULL=1 runs twenty times as many.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_FULL = bool(os.environ.get("GLIA_FULL"))

settings.register_profile(
    "glia",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=2000 if _FULL else 100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("glia")
