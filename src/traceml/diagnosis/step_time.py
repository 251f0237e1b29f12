"""Judges where the steps' time goes: waiting for data, the model's own work, nothing in particular, or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.device import may_wait_for_host
from traceml.diagnosis.finding import CRITICAL, INFO, WARNING, Evidence, Finding
from traceml.diagnosis.ground import (
    judged_rank,
    num_steps_needed,
    num_units_missing,
    undecided,
    waiting_share,
    waits_steadily,
)
from traceml.diagnosis.loader_advice import loader_advice, loader_in_words
from traceml.diagnosis.price import NS_PER_MS, phase_cost, price_of, rule_text, severity_of
from traceml.diagnosis.sentences import (
    COMPUTE_PHASES,
    clock_note,
    compute_share,
    part_of,
    phases_in_words,
    profile_snippet,
    sentence,
    share_in_words,
    spread_of,
    unseen_note,
)
from traceml.diagnosis.waiting import waiting_of
from traceml.schema import units
from traceml.schema.phases import H2D, INPUT, SYNC, label

if TYPE_CHECKING:
    from traceml.analysis.facts import Ending, Facts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds

_NOT_JUDGED: Final = (SYNC, H2D)  # on the host's clock
_TRACE_STEP: Final = "put `with traceml.trace_step(model):` around the body of the training loop"


def input_bound(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """Training waits for data: input is at least 10 % and 0.5 ms of the period, in at least a fifth of the steps.

    A step waits when its input takes at least 5 % of a typical period and 0.1 ms. Long waits in fewer steps, and waits
    that are mostly the start of epochs, are OVERHEAD_BOUND, with the part "epoch start" or "rare waits for data".

    Next: more `num_workers` when the cores allow, else a batch that is cheaper to load; `persistent_workers=True`
    when most of the wait is at the start of epochs; `pin_memory=True` beside a device.
    """
    rank = judged_rank(facts, limits)
    if rank is None or INPUT not in rank.phases or not waits_steadily(rank, limits):
        return None
    impact = price_of(phase_cost(rank, INPUT), rank)
    if impact.pct < 100 * limits.input_share or impact.ms * NS_PER_MS < limits.min_cost_ns:
        return None
    spread = spread_of(rank.phases[INPUT], num_steps=rank.num_steady, limits=limits)
    compared = part_of(rank.mean_ns(INPUT) or 0.0, rank.total_ns / rank.num_steady)
    return Finding(
        diagnosis="INPUT_BOUND",
        severity=severity_of(impact, rank, limits, at_most=_at_most(facts, rank)),
        summary=sentence(spread, rank, verb="waits for data", limits=limits),
        why=f"input {compared} a step; {loader_in_words(facts.loader)}{clock_note(facts, rank)}",
        next=loader_advice(facts, rank, limits),
        rule=rule_text(input_bound),
        evidence=(
            Evidence("input", impact.pct, 100 * limits.input_share, "%"),
            Evidence("input a step", impact.ms, limits.min_cost_ns / NS_PER_MS, "ms"),
            Evidence(
                "steps that wait", 100 * (waiting_share(rank, limits) or 0.0), 100 * limits.waiting_steps_share, "%"
            ),
        ),
        ranks=(rank.state.identity.rank,),
        phases=(INPUT,),
        impact=impact,
    )


def compute_bound(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The time is the model's own work: forward, backward and optimizer are at least 70 %, and no cause fires.

    No cause was found outside of the model's own work. What is slow inside of it is a profiler's question, on three
    steps after the warm-up.

    Next: `torch.profiler` for three steps (the snippet is in docs/messages.md, COMPUTE_BOUND).
    """
    rank = judged_rank(facts, limits)
    if rank is None:
        return None
    share = compute_share(rank)
    if share < limits.compute_share:
        return None
    largest = _largest_in_words(rank)
    notes = unseen_note(rank) + clock_note(facts, rank) + _ranks_note(facts, limits)
    notes += may_wait_for_host(facts, rank, limits)
    return Finding(
        diagnosis="COMPUTE_BOUND",
        severity=INFO,
        summary=f"{share_in_words(share)} of the time is the model's own work: "
        f"{phases_in_words(rank, COMPUTE_PHASES)}.",
        why=f"no rule found a cause outside of it; {largest}{notes}",
        next=profile_snippet(rank, limits),
        rule=rule_text(compute_bound),
        evidence=(Evidence("forward, backward and optimizer", 100 * share, 100 * limits.compute_share, "%"),),
        ranks=(rank.state.identity.rank,),
        phases=tuple(phase for phase in COMPUTE_PHASES if rank.phase_ns(phase)),
    )


def balanced(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """No single cause is worth a look: no other verdict fires, and the model's own work is under 70 %.

    Where the ranks wait for one another for a fifth of the time and more, it is said of what the waits are made.

    Next: nothing; a profiler is not needed. For waits: as many ranks as cores, fewer reductions, or like batches.
    """
    rank = judged_rank(facts, limits)
    if rank is None or compute_share(rank) >= limits.compute_share:
        return None
    waiting = waiting_of(facts, rank, limits)
    made_of = f"{waiting.why}; " if waiting else ""
    return Finding(
        diagnosis="BALANCED",
        severity=INFO,
        summary=waiting.summary if waiting else _balanced_sentence(facts, rank, limits),
        why=f"{made_of}{_largest_in_words(rank, num_phases=3)}{unseen_note(rank)}{clock_note(facts, rank)}"
        f"{may_wait_for_host(facts, rank, limits)}{_ranks_note(facts, limits)}",
        next=waiting.next if waiting else _balanced_next(facts, rank, limits),
        rule=rule_text(balanced),
        evidence=(
            Evidence("forward, backward and optimizer", 100 * compute_share(rank), 100 * limits.compute_share, "%"),
        ),
        ranks=(rank.state.identity.rank,),
    )


def insufficient_data(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """Too little was seen for a verdict: fewer than 8 steady steps (20 with several ranks), or steps not to be trusted.

    Steps of the warm-up, failed steps and those in which the process was stopped or traced do not count. Where several
    ranks synchronise, 20 units between two synchronisations are needed as well: with gradient accumulation over 4 steps
    that takes 80.

    Next: let it run for the missing steps, or put `with traceml.trace_step(model):` around the body of the loop.
    """
    if judged_rank(facts, limits) is not None:
        return None
    summary, why, action = _missing(facts, limits)
    rank, missing = facts.median_rank, num_units_missing(facts, limits)
    counted = Evidence("steady steps", float(rank.num_steady if rank else 0), num_steps_needed(facts, limits), "steps")
    if missing and facts.ledger is not None:
        counted = Evidence("synchronisations", float(facts.ledger.num_units), float(limits.min_units), "units")
    return Finding(
        diagnosis="INSUFFICIENT_DATA",
        severity=INFO,
        summary=summary,
        why=why,
        next=action,
        rule=rule_text(insufficient_data),
        evidence=(counted,),
    )


def _missing(facts: Facts, limits: Thresholds) -> tuple[str, str, str]:
    """Summary, reason and next step of a verdict that cannot be given."""
    num_all = sum(rank.num_steps for rank in facts.ranks)
    if facts.unsure:
        return (
            f"No step verdict: {facts.unsure}.",
            "the steps were inferred, and may not be the script's own",
            _TRACE_STEP,
        )
    if not num_all:
        return _no_step(facts.ending)
    rank = facts.median_rank or max(facts.ranks, key=lambda rank: rank.num_steps)
    needed = num_steps_needed(facts, limits)
    missing = num_units_missing(facts, limits)
    if rank.num_steady >= needed and missing:
        return _units_missing(facts, missing, limits)
    if rank.num_steady >= needed:
        return "No step verdict: the steps took no measurable time.", "the sum of all periods is 0 ns", _TRACE_STEP
    why = (
        f"{units.count(rank.num_steps)} finished: {units.count(rank.num_warmup)} warm-up, "
        f"{units.count(rank.num_failed)} failed, {_halted(rank)}{units.count(rank.num_steady)} steady"
    )
    if rank.num_failed and rank.num_failed == rank.num_steps:
        action = "look at the exception: every step raised"
    elif rank.num_halted and rank.num_halted >= rank.num_steps - rank.num_failed:
        action = "run it without the debugger"
    elif facts.ending.has_failed:
        action = f"{_look_at(facts.ending)}; {units.count(needed - rank.num_steady)} more steps give a verdict"
    else:
        action = f"run at least {units.count(needed - rank.num_steady)} more steps"
    return f"{rank.num_steady} of {needed} steady steps seen.", why, action


def _units_missing(facts: Facts, missing: int, limits: Thresholds) -> tuple[str, str, str]:
    """What to say of ranks that have not synchronised often enough."""
    assert facts.ledger is not None
    whole = facts.ledger.whole
    steps_a_unit = whole.num_steps / whole.num_units if whole else 1.0
    every = "" if steps_a_unit == 1 else f", one every {units.significant(steps_a_unit)} steps"
    return (
        f"{facts.ledger.num_units} of {limits.min_units} synchronisations of the ranks seen.",
        f"who waits for whom is told between two of them{every}; those of the warm-up do not count",
        f"run at least {units.count(round(missing * steps_a_unit))} more steps",
    )


def _ranks_note(facts: Facts, limits: Thresholds) -> str:
    """That nobody can say who waits for whom, and why; else nothing."""
    reason = undecided(facts, limits)
    return f"; who waits for whom is not decided: {reason}" if reason else ""


def _halted(rank: RankFacts) -> str:
    return f"{units.count(rank.num_halted)} stopped or traced, " if rank.num_halted else ""


def _no_step(ending: Ending) -> tuple[str, str, str]:
    """What to say without a single step: of a run that goes on, of one that was ended, and of one that ended well."""
    if ending.is_running:
        why = f"it starts, or its loop has no `trace_step`; if no step comes: {_TRACE_STEP}"
        return "No finished step has been read yet.", why, "wait for the first step to end"
    if ending.words:
        action = _look_at(ending) if ending.has_failed else "let the script come to its first step"
        was = "was " if ending.words.startswith(("killed", "interrupted")) else ""
        return f"The run {was}{ending.words} before its first step.", "no step was entered and left until then", action
    return "No step was seen.", "no `trace_step` was entered and left, no optimizer stepped", _TRACE_STEP


def _look_at(ending: Ending) -> str:
    if ending.exception:
        return f"look at the {units.clean(ending.exception)} that ended the script"
    return "look at what the script printed at its end"


def _at_most(facts: Facts, rank: RankFacts) -> str:
    """Without the device's clock a share beside a device is not certain enough for red."""
    return WARNING if clock_note(facts, rank) else CRITICAL


def _largest_in_words(rank: RankFacts, *, num_phases: int = 1) -> str:
    """The largest phases with their shares; one alone is the largest beside the model's own work."""
    shares = [(name, rank.share(name) or 0.0) for name in rank.phases if num_phases > 1 or name not in COMPUTE_PHASES]
    largest = sorted(shares, key=lambda item: -item[1])[:num_phases]
    words = ", ".join(f"{units.clean(label(name))} {units.percent(share)}" for name, share in largest)
    if not words:
        return "nothing else was seen"
    return f"the largest other part is {words}" if num_phases == 1 else words


def _largest_not_judged(facts: Facts, rank: RankFacts, limits: Thresholds) -> tuple[float, str]:
    is_told = facts.world_size > 1 and not undecided(facts, limits)
    names = [*(() if is_told else (SYNC,)), *((H2D,) if facts.clock == "host" else ())]
    return max(((rank.share(phase) or 0.0, phase) for phase in names), default=(0.0, SYNC))


def _balanced_next(facts: Facts, rank: RankFacts, limits: Thresholds) -> str:
    share, phase = _largest_not_judged(facts, rank, limits)
    if share >= limits.overhead_share and phase == SYNC and facts.world_size > 1:
        return _profile_the_busiest(facts, limits)
    if share >= limits.overhead_share:
        return f"look at {label(phase)} with torch.profiler: TraceML does not judge it"
    return "nothing to do here; a profiler is not needed"


def _profile_the_busiest(facts: Facts, limits: Thresholds) -> str:
    """The next step where nobody can say who waits for whom, and no claim that this rank is the one."""
    own_ns = {one.state.identity.rank: _own_ns(one) for one in facts.ranks if one.num_steady}
    first, *others = sorted(own_ns, key=lambda rank: -own_ns[rank])
    if not others or own_ns[first] < limits.clearly_more * own_ns[others[0]]:
        return "profile three steps of each rank with torch.profiler: beside waiting they do about as much"
    most, next_most = units.duration(own_ns[first]), units.duration(own_ns[others[0]])
    return (
        f"look at rank {first} first, with torch.profiler: beside waiting it does most, {most} a step, "
        f"rank {others[0]} {next_most}"
    )


def _own_ns(rank: RankFacts) -> float:
    return (rank.total_ns - (rank.phase_ns(SYNC) or 0)) / rank.num_steady


def _balanced_sentence(facts: Facts, rank: RankFacts, limits: Thresholds) -> str:
    share, phase = _largest_not_judged(facts, rank, limits)
    if share >= limits.overhead_share and phase == SYNC and facts.world_size > 1:
        return f"{share_in_words(share)} of the time the ranks wait for one another, and who for whom is not known."
    if share >= limits.overhead_share:
        return f"No cause that is judged is worth a look; {label(phase)} takes {units.percent(share)} of the time."
    period_ns = rank.total_ns / rank.num_steady
    largest_ns = max((rank.mean_ns(name) or 0.0 for name in rank.phases if name not in COMPUTE_PHASES), default=0.0)
    if largest_ns < limits.min_cost_ns and largest_ns >= limits.input_share * period_ns:
        return (
            f"Steps of {units.duration(period_ns)} are too short to name a cause: "
            f"none costs {units.duration(limits.min_cost_ns)} a step."
        )
    return "No single cause is worth a look."
