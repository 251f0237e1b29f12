"""Is the installed command `traceml`: unlike `python -m`, it does not put the working folder on sys.path."""

from __future__ import annotations

import sys

from traceml.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
