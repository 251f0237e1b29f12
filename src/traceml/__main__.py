"""Is `python -m traceml`: the command `traceml`."""

from __future__ import annotations

import sys

from traceml.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
