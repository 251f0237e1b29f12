"""Starts ranks as torchrun does, each a process with its number in the environment, and waits for them."""

from __future__ import annotations

import os
import subprocess
import sys

RANK = """
import os, subprocess, sys, time
rank = os.environ["RANK"]
print(f"rank {rank} prints, tty {os.isatty(1)}", flush=True)
print(f"rank {rank} complains", file=sys.stderr, flush=True)
child = subprocess.run([sys.executable, "-c", "print('asked')"], capture_output=True, text=True)
print(f"rank {rank} heard {child.stdout.strip()}", flush=True)
"""

ranks = [
    subprocess.Popen([sys.executable, "-c", RANK], env={**os.environ, "RANK": number, "LOCAL_RANK": number})
    for number in ("0", "1", "2")
]
for rank in ranks:
    rank.wait()
