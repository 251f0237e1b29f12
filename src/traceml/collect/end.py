"""Says how a run ended, from what its launcher and its ranks could tell."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Final, Optional, Sequence

from traceml.schema.records import RankEnd, RunEnd

_TOGETHER_NS: Final = 3_000_000_000  # a launcher and ranks that vanish within 3 s were ended by the same hand
_INTERRUPT: Final = "signal SIGINT"
_GOOD: Final = ("end", "shutdown", "trace-max-steps")


@dataclass(frozen=True)
class ScriptExit:
    """What the launcher saw: the code for the shell, and the name of the signal that ended the script."""

    code: int
    signal: Optional[str] = None


@dataclass(frozen=True)
class Departure:
    """What is known of the end: the launcher's word, its own end, and one goodbye a rank (None: it gave none)."""

    exit: Optional[ScriptExit]
    ends: Sequence[Optional[RankEnd]]
    ended_ns: int
    ended_at: float
    launcher_gone_ns: Optional[int] = None  # it vanished without a word
    was_interrupted: bool = False  # a Ctrl-C came to all ranks
    first_death: str = ""  # of several ranks; then the first of `ends` is that one's: the others died of it


def exit_of(wait_status: int) -> ScriptExit:
    """What a launcher would have seen of a process that ended with this wait status."""
    code = os.waitstatus_to_exitcode(wait_status)
    return ScriptExit(code) if code >= 0 else ScriptExit(128 - code, signal.Signals(-code).name)


def training_exit(told: ScriptExit, wait_status: Optional[int]) -> tuple[ScriptExit, str]:
    """How the training ended that the command had started, and what is to be noted where the command ended otherwise.

    A shell goes on behind a training, and a training that failed does not end it.

    Args:
        told: How the command ended.
        wait_status: How the training's own process ended; None: it is the command itself, or nobody can tell.
    """
    own = told if wait_status is None else exit_of(wait_status)
    if own == told:
        return told, ""
    how = f"was killed by {told.signal}" if told.signal is not None else f"ended with exit code {told.code}"
    return own, f"the command that had started the training {how}"


def run_end(departure: Departure) -> RunEnd:
    """How the run ended. What nobody saw is `unknown`, never guessed."""
    status, ended_by = _told(departure) if departure.exit is not None else _guessed(departure)
    ends = departure.ends[:1] if departure.first_death else departure.ends
    exception = next((end.exception for end in ends if end is not None and end.exception), "")
    return RunEnd(
        status=status,
        ended_by=ended_by,
        exit_code=None if departure.exit is None else departure.exit.code,
        ended_ns=departure.ended_ns,
        ended_at=departure.ended_at,
        exception=exception if status != "completed" else "",
        first_death=departure.first_death if status != "completed" and not departure.was_interrupted else "",
    )


def _told(departure: Departure) -> tuple[str, str]:
    assert departure.exit is not None
    hows = [None if end is None else end.how for end in departure.ends]
    if departure.was_interrupted and departure.exit.code != 0:
        return "killed", _INTERRUPT
    if departure.exit.signal is not None:
        return "killed", f"signal {departure.exit.signal}"
    is_of_exception = "exception" in (hows[:1] if departure.first_death else hows)
    if is_of_exception and departure.exit.code != 0:
        return "failed", "exception"
    if departure.exit.code != 0:
        return "failed", "exit"
    # os._exit(0) says no goodbye.
    return "completed", "end" if all(how is not None for how in hows) else "exit"


def _guessed(departure: Departure) -> tuple[str, str]:
    """Nobody saw the exit code: plain python, or a launcher that was killed."""
    hows = [None if end is None else end.how for end in departure.ends]
    if departure.was_interrupted:
        return "killed", _INTERRUPT
    if "exception" in hows:
        return "failed", "exception"
    if hows and all(how in _GOOD for how in hows):
        return "completed", "end"
    gone_ns = departure.launcher_gone_ns
    if gone_ns is not None and abs(departure.ended_ns - gone_ns) <= _TOGETHER_NS:
        return "killed", "launcher"
    return "unknown", "unknown"
