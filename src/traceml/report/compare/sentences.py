"""Says what was found: the sentence, where the time moved, what to do next, and what the interval rests on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Optional, Sequence

from traceml.report.compare import contract
from traceml.report.compare.times import REST, STEP
from traceml.schema import phases, units

if TYPE_CHECKING:
    from traceml.report.compare.contract import PhaseChange, StepChange
    from traceml.report.compare.ranks import RankPhase
    from traceml.report.contract import Report

_MAX_NAMED: Final = 3
_MAX_SENTENCE: Final = 400
_MAX_LABEL: Final = 40
_NAMED_SHARE: Final = 0.1  # of what moved; a smaller phase goes into the rest of the sentence
_MS_UNTIL: Final = 10_000.0
_TENTHS_UNTIL: Final = 10.0  # percent
_TIMES_FROM: Final = 300.0  # percent; from there on people think in times
_PERCENT: Final = 100.0
_OF_PHASE: Final = {phases.INPUT: "INPUT_BOUND", phases.H2D: "H2D_BOUND"}  # verdicts with advice for one phase
_OF_RANKS: Final = ("STRAGGLER", "ROTATING_STRAGGLER")  # who the others wait for is behind their waiting
_STARVED_PCT: Final = 1000.0  # of drift: where the allowance ends
_USUAL_REPEATS: Final = 5  # from four a side on the interval is exact, and one odd run of five moves it little
_NONE_MOVED: Final = "no single phase beyond chance"
ALL_ELSE: Final = "all else"  # in a table or a sentence: whatever it does not name
_CLEARLY: Final = 1 / 3  # of a change lies between 0 and the interval: three standard errors of 95 % ones
_DOUBTFUL: Final = " (can be chance)"
_MINUS: Final = "-"  # as a terminal, a shell and a screen reader know it


def percent(value: float) -> str:
    """`4.7`, `15`, `-0.3`: one decimal below ten."""
    text = f"{value:.1f}" if abs(value) < _TENTHS_UNTIL else f"{value:,.0f}"
    return text.lstrip(_MINUS) if float(text.replace(",", "")) == 0 else text


def longer(step: StepChange) -> str:
    """`15 % longer [+12 % to +18 %]`, `13 % less time [-15 % to -11 %]`, `27 times as long [25 to 29 times]`.

    A sign is the change's own everywhere: minus is less time.
    """
    change = step.change_pct
    if change >= _TIMES_FROM:
        least, most = (units.significant(1 + pct / _PERCENT) for pct in _ends(step))
        return f"{_alone(change)} [{least} to {most} times]"
    return f"{_alone(change)} {_interval(step)}"


def _alone(change_pct: float) -> str:
    if change_pct >= _TIMES_FROM:
        return f"{units.significant(1 + change_pct / _PERCENT)} times as long"
    return f"{percent(abs(change_pct))} % {'less time' if change_pct < 0 else 'longer'}"


def _interval(step: StepChange) -> str:
    low, high = _ends(step)
    return f"[{signed_percent(low)} to {signed_percent(high)}]"


def _ends(step: StepChange) -> tuple[float, float]:
    """The interval in percent; both ends are the change itself where none is told."""
    low, high = (step.change_pct if end is None else end for end in (step.low_pct, step.high_pct))
    return low, high


def signed_percent(value: float) -> str:
    """`+4.7 %`, `-15 %`, `+0.0 %`."""
    text = percent(value)
    return f"{text if text.startswith(_MINUS) else f'+{text}'} %"


def every_phase(pct: float, *, causes: Sequence[str], may_be_machine: bool) -> str:
    """Why no phase is named: all that matter changed by the same share."""
    told = f"Every phase takes about {percent(abs(pct))} % {'less time' if pct < 0 else 'longer'}: "
    named = [units.clean(cause) for cause in causes]
    if may_be_machine:
        return f"{told}rather the machine{''.join(f', or {cause},' for cause in named)} than one part of the script."
    return f"{told}{' or '.join(named) or 'something that all phases share'}, rather than one part of the script."


def change_of(step: StepChange) -> str:
    """`+0.2 % [-2.0 % to +2.3 %]`."""
    return f"{signed_percent(step.change_pct)} {_interval(step)}"


def from_to(step: StepChange) -> str:
    """`93.4 ms, was 81.0`."""
    after, before = units.duration(step.after_ms * 1e6), units.duration(step.before_ms * 1e6)
    number, _, unit = before.partition(" ")
    return f"{after}, was {number if after.endswith(f' {unit}') and ' ' not in unit else before}"


def summary(diagnosis: str, typical: StepChange, mean: StepChange, *, same_pct: float, change_pct: float) -> str:
    """The verdict's sentence."""
    told = f"a typical step takes {_longer_or_not(typical)}: {from_to(typical)}"
    if diagnosis == contract.SAME:
        within = f"a typical step takes the same time within {percent(same_pct)} %: {from_to(typical)}"
        return f"{within}, or {change_of(typical)}."
    if diagnosis == contract.UNDECIDED:
        return f"{told}. {_what_is_open(typical, same_pct=same_pct, change_pct=change_pct)}"
    if diagnosis != contract.MIXED:
        return f"{told}."
    if _crosses_zero(mean) and not _crosses_zero(typical):
        return f"{told}, but all steps together do not: rare long steps changed otherwise than the typical one."
    if _crosses_zero(mean):
        return f"{told}, but time moved from one phase to another."
    return f"{told}; all steps together take {longer(mean)}, so rare long steps changed otherwise than the typical one."


def _what_is_open(typical: StepChange, *, same_pct: float, change_pct: float) -> str:
    if not _crosses_zero(typical):
        return f"That is more than chance; whether it is more than {percent(change_pct)} % is open."
    return "That can be chance." if _has_changed(typical) else f"Within {percent(same_pct)} % it would be the same."


def summary_of_starved(typical: StepChange, *, num_before: int, num_after: int) -> str:
    """The sentence of runs that are not judged: without the interval, which would be as wide as the page."""
    runs = "One run a side tells" if num_before == num_after == 1 else f"{num_before} against {num_after} tell"
    return f"a typical step takes {_alone(typical.change_pct)}: {from_to(typical)}. {runs} nothing of it."


def _longer_or_not(step: StepChange) -> str:
    """As `longer`; `as long as before, give or take 10 %` where that would say 0.0 % longer."""
    if _has_changed(step):
        return longer(step)
    low, high = _ends(step)
    return f"as long as before, give or take {percent(max(-low, high))} %"


def _has_changed(step: StepChange) -> bool:
    return float(percent(step.change_pct).replace(",", "")) != 0


def _crosses_zero(step: StepChange) -> bool:
    low, high = _ends(step)
    return low <= 0 <= high


def where(
    rows: Sequence[PhaseChange],
    diagnosis: str,
    *,
    phase: Optional[str] = None,
    behind: Optional[RankPhase] = None,
    is_alike: bool = False,
) -> str:
    """`+12.4 ms a step [+11.1 to +13.6]: input +12.1, backward +0.2, all else +0.1`: the parts add up to what is said.

    Args:
        rows: The waterfall.
        diagnosis: The verdict's.
        phase: The one that the verdict names: where no mean moved it is named for the typical step.
        behind: The rank whose own work changed: the rows are of one that waits for it.
        is_alike: Every phase changed by the same share: none is named.
    """
    whole = next((row for row in rows if row.phase == STEP), None)
    if whole is None:
        return ""
    size, unit = size_of([whole.before_ms, whole.after_ms])
    change = whole.change_ms / size
    ends = [end / size for end in (whole.low_ms, whole.high_ms) if end is not None]
    decimals = decimals_for([change, *ends] if ends else [whole.before_ms / size, whole.after_ms / size])
    said = f"{signed(change, decimals)} {unit} a step"
    said += f" [{' to '.join(signed(end, decimals) for end in ends)}]" if ends else ""
    if is_alike:
        return f"{said}: every phase by about the same share"
    if len(rows) == 1:
        return said
    moved = any(row.moved for row in rows if row.phase != STEP)
    named = _named(rows)
    parts = [(phase_label(row.phase), row.change_ms / size) for row in named]
    doubtful = {phase_label(row.phase) for row in named if moved and not row.moved and ends}
    if not moved and (diagnosis == contract.SAME or not parts):
        return f"{said}: {_NONE_MOVED}"
    rest = round(change, decimals) - sum(round(part, decimals) for _, part in parts)
    others = [row for row in rows if row.phase != STEP and row not in named and round(row.change_ms / size, decimals)]
    most = max((abs(part) for _, part in parts), default=0.0)
    # One row that is left, and that one would look for, is called as the table calls it.
    else_ = phase_label(others[0].phase) if len(others) == 1 and abs(rest) > _NAMED_SHARE * most else ALL_ELSE
    told = ", ".join(
        f"{name} {signed(part, decimals)}{_DOUBTFUL * (name in doubtful)}" for name, part in (*parts, (else_, rest))
    )
    if behind is not None:
        waits = "the others wait for it" if behind.change_ms > 0 else "the others wait less for it"
        rank = f"rank {behind.rank} in {phase_label(behind.phase)} {signed(behind.change_ms / size, decimals)} {unit}"
        return f"{said}: {rank}, {waits}; the median rank: {told}"
    none_moved = f"{_NONE_MOVED} in the mean, {phase_label(phase)} in a typical step" if phase else _NONE_MOVED
    return f"{said}: {told}" if moved or not ends else f"{said}: {none_moved}; {told}"


def culprit(rows: Sequence[PhaseChange], *, is_slower: Optional[bool]) -> Optional[str]:
    """The phase that moved most, in the step's own direction when that is known; None: no phase moved beyond chance."""
    moved = [row for row in rows if row.moved and row.phase not in (STEP, REST)]
    if is_slower is not None:
        moved = [row for row in moved if (row.change_ms > 0) == is_slower]
    return max(moved, key=lambda row: abs(row.change_ms)).phase if moved else None


def next_step(diagnosis: str, phase: str, *, after: Report, rank: Optional[int] = None, is_new: bool = False) -> str:
    """One thing to do about a phase that takes longer, or another time; of other verdicts nothing."""
    if diagnosis not in (contract.REGRESSION, contract.MIXED):
        return "nothing"
    name, verdict = phase_label(phase), after.verdict
    if rank is not None:
        return f"look at what changed {'' if phase == phases.BETWEEN_STEPS else 'in '}{name} of rank {rank}"
    if phase == phases.SYNC and verdict.diagnosis in _OF_RANKS and verdict.next:
        return f"{short(verdict.summary)} {short(verdict.next)}"
    if verdict.diagnosis == _OF_PHASE.get(phase) and verdict.next:
        return f"{name}: {short(verdict.next)}"
    if is_new:
        return f"look at {name}, which only the runs after have"
    return f"look at what changed {name if phase == phases.BETWEEN_STEPS else f'in {name}'}"


def next_without_phase(
    diagnosis: str, *, is_alike: bool, is_repeated: bool, has_phases: bool, unmeasured: Sequence[str]
) -> str:
    """What to do about a step that takes longer when no phase is to be named."""
    if diagnosis not in (contract.REGRESSION, contract.MIXED):
        return "nothing"
    if not has_phases:
        return "compare runs on one clock: they show which phase it is"
    if unmeasured and not is_alike:
        names = ", ".join(phase_label(phase) for phase in unmeasured)
        return f"trace both sides alike: all else holds {names}, which is not measured in every run"
    if is_alike and is_repeated:
        return "look at what all phases share: versions, threads, precision, the size of the data"
    if is_repeated:
        return "look at the waterfall"
    reason = "tell these apart" if is_alike else "see which phase it is"
    return f"to {reason}, {_in_turns(_USUAL_REPEATS)}"


def next_repeats(repeats: Optional[int], *, is_repeated: bool, is_starved: bool) -> str:
    """What to do where chance cannot be told from a change: how many runs, in which order, and the command then."""
    if is_starved:
        return f"run both again while cores are free, {_in_turns(_USUAL_REPEATS)}"
    if repeats is not None:
        return f"about {_in_turns(repeats, would='would decide if the difference stays')}"
    if is_repeated:
        return "more than 50 runs a side would decide if the difference stays; a wider `--margin` asks for less"
    return f"{_in_turns(_USUAL_REPEATS, would='show how much runs differ')}; more than 50 may be needed to decide"


def next_of_moved(phase: str, repeats: str) -> str:
    """What to do where the step is open and one phase is not."""
    return f"look at what changed in {phase_label(phase)}; for the step itself {repeats}"


def surely_moved(rows: Sequence[PhaseChange]) -> Optional[PhaseChange]:
    """The phase that moved most beyond chance, and clearly so: several are looked at, and one of them is the widest."""
    moved = [row for row in rows if row.moved and row.phase not in (STEP, REST) and not row.only]
    sure = [
        row for row in moved if min(abs(row.low_ms or 0.0), abs(row.high_ms or 0.0)) >= _CLEARLY * abs(row.change_ms)
    ]
    return max(sure, key=lambda row: abs(row.change_ms), default=None)


def what_moved(rows: Sequence[PhaseChange]) -> list[str]:
    """The sentence of a phase that changed beyond chance in a step of which that is open; none where none did."""
    row = surely_moved(rows)
    if row is None:
        return []
    told = "longer" if row.change_ms > 0 else "less time"
    return [f"That {phase_label(row.phase)} takes {told} is more than chance."]


def next_host(hosts_pct: float) -> str:
    """What to do where the allowance for different hosts, which no repeats lower, is what leaves it open."""
    return (
        f"run both on the same host: {percent(hosts_pct)} % is allowed for what hosts differ by, whatever the repeats"
    )


def _in_turns(repeats: int, *, would: str = "") -> str:
    runs = f"{repeats} runs a side, taking turns{f', {would}' if would else ''}"
    return f"{runs}: `traceml compare A1 ... A{repeats} --against B1 ... B{repeats}` (`--help` shows the loop)"


def basis(
    *,
    num_before: int,
    num_after: int,
    drift_pct: float,
    is_repeated: bool,
    is_interleaved: bool,
    is_counted: bool,
) -> str:
    """What the interval rests on; `is_counted`: the kernel told of each run how long it waited for a core."""
    runs = f"{num_before} run{'s' * (num_before > 1)} against {num_after}"
    if not is_repeated and drift_pct >= _STARVED_PCT:
        waited = "a run waited for a core, which others or its own threads had"
        why = waited if is_counted else "the host was full, and some steps of a run far longer than others"
        return f"{runs}: {why}"
    if not is_repeated:
        return f"{runs}: the spread within them, and {percent(drift_pct)} % for drift from run to run"
    turns = "taking turns" if is_interleaved else "one side after the other"
    drift = f", and {percent(drift_pct)} % for drift" if drift_pct else ""
    return f"{runs}, {turns}: the spread between repeats{drift}"


def short(text: str) -> str:
    """A sentence of a run's own, clean; our longest has half as many characters as stay."""
    text = units.clean(text)
    return text if len(text) <= _MAX_SENTENCE else f"{text[: _MAX_SENTENCE - 1]}…"


def phase_label(phase: str) -> str:
    """What people call a row of the waterfall."""
    if phase == REST:
        return ALL_ELSE
    known = phase in phases.LABELS or phase.startswith(phases.REGION_PREFIX)
    return phases.label(phase) if known else units.clean(phase)[:_MAX_LABEL]


def size_of(values: Sequence[float]) -> tuple[float, str]:
    """In what all these times (ms) are said, by the largest: milliseconds in one, and its name."""
    largest = max((abs(value) for value in values), default=0.0)
    return (1e3, "s") if largest >= _MS_UNTIL else (1.0, "ms")


def decimals_for(values: Sequence[float]) -> int:
    """The decimals that give the largest of these numbers three digits, at most six, at least one."""
    largest = max((abs(value) for value in values), default=0.0)
    return 1 if largest <= 0 else min(6, max(1, 2 - math.floor(math.log10(largest))))


def signed(value: float, decimals: int) -> str:
    """`+12.1`, `-0.3`, `+0.0`."""
    text = f"{value:+,.{decimals}f}"
    return "+" + text[1:] if float(text.replace(",", "")) == 0 else text


def _named(rows: Sequence[PhaseChange]) -> list[PhaseChange]:
    """The phases the sentence names, at most three, the largest first: those that moved, then those that may have."""
    found = [row for row in rows if row.phase not in (STEP, REST)]
    most = max((abs(row.change_ms) for row in found), default=0.0)
    large = [row for row in found if abs(row.change_ms) >= _NAMED_SHARE * most and row.change_ms]
    chosen = sorted(large, key=lambda row: (row.moved, abs(row.change_ms)), reverse=True)[:_MAX_NAMED]
    return sorted(chosen, key=lambda row: abs(row.change_ms), reverse=True)
