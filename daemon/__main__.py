"""`python -m daemon VERB` is `gliad VERB`, and `gliad` is this."""

from __future__ import annotations

import signal
import sys

# Until the rest is imported Ctrl-C ends us without a word; a shell that has us ignore it goes on.
_before = signal.getsignal(signal.SIGINT)
if _before is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from daemon.cli import main  # noqa: E402

signal.signal(signal.SIGINT, _before)

if __name__ == "__main__":
    sys.exit(main())
