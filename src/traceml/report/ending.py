"""Says in words how a run ended, when that was not its own good end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Optional

from traceml.analysis.facts import Ending
from traceml.schema import units

if TYPE_CHECKING:
    from traceml.schema.records import RunEnd

_INTERRUPT: Final = "signal SIGINT"


def ending_of(end: Optional[RunEnd], *, is_running: bool) -> Ending:
    """The end as the rules look at it.

    Args:
        end: What launcher and ranks could tell; None: nobody has.
        is_running: Whether the run goes on.
    """
    if is_running:
        return Ending(is_running=True)
    if end is None:
        return Ending(in_words("unknown"))
    words = in_words(end.status, ended_by=end.ended_by, exit_code=end.exit_code, exception=end.exception)
    return Ending(words, has_failed=end.status == "failed", exception=end.exception)


def in_words(
    status: str,
    *,
    ended_by: str = "unknown",
    exit_code: Optional[int] = None,
    exception: str = "",
    first_death: str = "",
) -> str:
    """`killed by SIGKILL`, `interrupted (Ctrl-C)`, `failed with exit code 3`; nothing of a good end, or of none.

    Of several ranks that failed it is told of the first one to die: `rank 1 killed by SIGKILL`.
    """
    if status == "killed":
        name = units.clean(ended_by)
        if name == _INTERRUPT:
            return "interrupted (Ctrl-C)"
        by = name.partition(" ")[2] if name.startswith("signal ") else name
        return f"killed by {by}" if by and by != "unknown" else "killed"
    if status == "failed":
        if first_death:
            return units.clean(first_death)
        if exception:
            return f"failed with {units.clean(exception)}"
        return f"failed with exit code {exit_code}" if exit_code is not None else "failed"
    return "ended unseen" if status == "unknown" else ""
