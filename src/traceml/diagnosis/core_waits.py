"""Says of a cost that may be the script's that the training waited for a core meanwhile, where that explains it."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final, Optional, Sequence

from traceml.diagnosis.finding import INFO, Evidence
from traceml.diagnosis.price import NS_PER_MS
from traceml.diagnosis.sentences import part_of
from traceml.diagnosis.when import share_of_steps
from traceml.schema import units

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts
    from traceml.diagnosis.finding import Finding
    from traceml.diagnosis.thresholds import Thresholds

ALONE: Final = "waiting for what one rank does alone"
_INPUT_BOUND: Final = "INPUT_BOUND"
_OVERHEAD_BOUND: Final = "OVERHEAD_BOUND"


def explained_by_core_waits(finding: Finding, facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The finding as it is told where the wait for a core explains it; None where it does not, or is not known.

    What the script does around the model, and batches made in the training's own process, take longer when the thread
    that does it has no core. The kernel counts that: at least 10 % of the time, and half of the finding's price, make
    it what is said, as information, where few steps hold the time. A thread that sleeps, or waits for a disk, waits for
    no core, and what every step has comes with the script.
    """
    rank = next((rank for rank in facts.ranks if rank.state.identity.rank in finding.ranks[:1]), None)
    if rank is None or rank.core_wait_share is None or finding.impact is None or not _may_be_slowed(finding, facts):
        return None
    share, period_ns, price_ns = rank.core_wait_share, _period_ns(rank), finding.impact.ms * NS_PER_MS
    if share < limits.core_wait_share:
        return None
    waited_ns = share * period_ns
    # Of a cost that lies in a stretch of the run only what was waited there can be a part.
    in_place_ns = waited_ns * share_of_steps(finding, facts, limits)
    if in_place_ns < limits.explained_share * price_ns or _is_in_every_step(rank, finding.phases[:1], limits):
        return None
    # In which phase it waited is not known, so this is what can be at most.
    explains = "enough to explain it" if waited_ns >= price_ns else "which may be most of it"
    who = "the training" if facts.world_size == 1 else f"rank {rank.state.identity.rank}"
    return replace(
        finding,
        severity=INFO,
        summary=f"{finding.summary.rstrip('.')}; meanwhile {who} waited for a core {units.percent(share)} of the time.",
        why=f"waiting for a core took {part_of(waited_ns, period_ns)} a step, {explains}; {finding.why}",
        next=_next(facts, limits),
        evidence=(*finding.evidence, Evidence("waiting for a core", 100 * share, 100 * limits.core_wait_share, "%")),
    )


def waits_of_ranks(facts: Facts) -> float:
    """The share (0..1) of the time that the middle rank waited for a core; 0 where it is not known."""
    known = [rank.core_wait_share for rank in facts.ranks if rank.core_wait_share is not None]
    return median(known) if known else 0.0


def core_wait_note(facts: Facts, number: int, excess_ns: float, limits: Thresholds) -> str:
    """What must be said of a rank whose excess is explained by its waiting for a core; else nothing.

    It is, where the wait holds half of it, and what is left would be no cause by itself: a collection of 270 ms in a
    full host holds waits, too.

    Args:
        facts: The run.
        number: The rank.
        excess_ns: What it does more than the others, a step.
        limits: When a wait explains an excess.
    """
    known = {rank.state.identity.rank: rank for rank in facts.ranks if rank.core_wait_share is not None}
    own = known.pop(number, None)
    if own is None or not own.num_steady:
        return ""
    share = own.core_wait_share or 0.0
    more = share - median([rank.core_wait_share or 0.0 for rank in known.values()] or [0.0])
    waited_ns, is_told = more * _period_ns(own), share >= limits.core_wait_share
    is_left = excess_ns - waited_ns >= limits.warning_share * _period_ns(own)
    if not is_told or is_left or waited_ns < limits.explained_share * excess_ns:
        return ""
    return f"; meanwhile it waited for a core {units.percent(share)} of the time"


def _is_in_every_step(rank: RankFacts, names: Sequence[str], limits: Thresholds) -> bool:
    times = rank.phases.get(names[0]) if names else None
    if times is None or not times.count:
        return False
    typical_ns = times.quantile(0.5, num_zeros=max(0, rank.num_steady - times.count)) or 0.0
    return typical_ns > limits.typical_of_mean * times.total / rank.num_steady


def _period_ns(rank: RankFacts) -> float:
    return rank.total_ns / rank.num_steady


def _may_be_slowed(finding: Finding, facts: Facts) -> bool:
    """Whether it is work of the thread whose waits are counted; workers make batches in processes of their own.

    What one rank does more than the others is not explained by waits that all had.
    """
    if any(evidence.name == ALONE for evidence in finding.evidence):
        return False
    if finding.diagnosis == _INPUT_BOUND:
        return facts.loader is None or not facts.loader.num_workers
    return finding.diagnosis == _OVERHEAD_BOUND


def _next(facts: Facts, limits: Thresholds) -> str:
    if (facts.system.throttled_share or 0.0) >= limits.throttled_share:
        return "the CPU quota stops the run: allow more cores, or use fewer loader workers and threads"
    cores = facts.system.num_cores
    named = "the cores" if cores is None else "the only core" if cores == 1 else f"the {cores:g} cores"
    return (
        f"other processes or threads take {named}: stop them, or give this run cores of its own "
        "(taskset, a smaller --nproc-per-node, fewer loader workers)"
    )
