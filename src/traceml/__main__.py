"""Is `python -m traceml`: the command `traceml`."""

from __future__ import annotations

import sys

# `python -m` puts the working folder first, unless it is told not to: a tty.py or rich.py there would be taken.
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):  # the second: Python 3.11 and newer
    sys.path.append(sys.path.pop(0))

from traceml.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
