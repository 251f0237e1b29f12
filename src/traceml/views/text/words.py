"""Says in words what the text faces share: the verdict's name, how a run ended, how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Optional, Union

from traceml.report.ending import in_words
from traceml.schema import units
from traceml.views.text.columns import clean

if TYPE_CHECKING:
    from traceml.report.contract import FindingInfo, Report, RunInfo, VerdictInfo

_NS_PER_S: Final = 1e9
_NS_PER_MS: Final = 1e6
_MS_PER_S: Final = 1e3


def seconds(value: float) -> str:
    """A duration of many steps, given in seconds: in ms only below a second. `204 ms`, `2.4 s`, `6 min 45 s`."""
    if 1 <= value < 9.995:  # noqa: PLR2004  # from there on units.duration speaks in s too
        return f"{value:.2f}".rstrip("0").rstrip(".") + " s"
    return units.duration(value * _NS_PER_S)


def millis(value: float) -> str:
    """A part of a step, given in milliseconds: in ms below 10 s."""
    return units.duration(value * _NS_PER_MS)


def total(ms: float) -> str:
    """A duration of many steps, given in milliseconds, as `seconds` says it."""
    return seconds(ms / _MS_PER_S)


def plural(number: int, noun: str) -> str:
    """`1 rank`, `1,204 steps`."""
    return f"{units.count(number)} {noun}{'' if number == 1 else 's'}"


def headline(report: Report) -> str:
    """The verdict's name and sentence: `INPUT BOUND (critical): 44 % of each step waits for data.`."""
    return spoken(report.verdict)


def spoken(finding: Union[VerdictInfo, FindingInfo]) -> str:
    """A finding's name, its severity where it is one, and its sentence."""
    name = clean(finding.diagnosis).replace("_", " ")
    severity = "" if finding.severity == "info" else f" ({clean(finding.severity)})"
    return f"{name}{severity}: {clean(finding.summary)}"


def ending(run: RunInfo) -> Optional[str]:
    """How a run ended when that was not its own good end: `killed by SIGKILL`, `failed with exit code 3`."""
    words = in_words(
        run.status,
        ended_by=run.ended_by,
        exit_code=run.exit_code,
        exception=run.exception,
        first_death=run.first_death,
    )
    return clean(words) or None
