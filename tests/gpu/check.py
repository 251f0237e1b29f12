"""Checks on one real GPU what the unit tests check on a stand-in, and prints the CUDA row of the budgets.

    make gpu-check

Under 4 minutes, needs torch 2.11 or newer and nothing else, installs nothing. Where there is no GPU it says so and ends
with exit code 0. Each check is a function that asserts; all run, and one that fails makes the exit code 1.
"""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

SKIPPED = "gpu-check: skipped, there is no GPU that torch can use here"


def has_gpu() -> bool:
    """Whether there is torch, and a device it can use."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def checks() -> tuple[Callable[[], str], ...]:
    """All of them; torch is imported here."""
    from tests.gpu import harmless, timing

    return (
        timing.phases_add_up,
        timing.input_is_0_while_work_is_queued,
        timing.run_ahead_is_bounded,
        timing.copies_are_h2d,
        harmless.captures_are_unbroken,
        harmless.the_scripts_peaks_are_its_own,
        harmless.no_room_is_told,
        harmless.nothing_waits_for_the_device,
        harmless.losses_are_bit_identical,
        harmless.compiled_graphs_stay_whole,
        harmless.a_device_that_fails_ends_the_clock_only,
    )


def main() -> int:
    """Runs every check, then the figures."""
    if not has_gpu():
        print(SKIPPED)
        return 0
    import torch

    from tests.gpu import figures

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}", flush=True)
    num_failed, found = 0, checks()
    for check in found:
        began = time.monotonic()
        try:
            word, told = "ok  ", check()
        except Exception as error:  # noqa: BLE001  # the others are wanted too
            num_failed += 1
            word, told = "FAIL", f"{type(error).__name__}: {error}"
            traceback.print_exc()
        print(f"{word} {check.__name__.replace('_', ' ')}: {told} ({time.monotonic() - began:.1f} s)", flush=True)
    figures.show()
    print(f"gpu-check: {len(found) - num_failed} of {len(found)} right")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
