"""Judges what the script does around the model: evaluation, checkpoints, regions, and all that nobody named."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.alone import IS_WORK, alone
from traceml.diagnosis.finding import CRITICAL, INFO, WARNING, Evidence, Finding
from traceml.diagnosis.ground import judged_rank, waits_often, waits_steadily
from traceml.diagnosis.loader_advice import epoch_advice
from traceml.diagnosis.price import (
    NS_PER_MS,
    Cost,
    epoch_start_cost,
    later_input_cost,
    phase_cost,
    price_of,
    rule_text,
    severity_of,
)
from traceml.diagnosis.sentences import (
    clock_note,
    compute_share,
    given_up,
    part_of,
    sentence,
    spread_of,
    unseen_compute,
    unseen_note,
)
from traceml.diagnosis.straggler import straggler
from traceml.schema import units
from traceml.schema.phases import (
    BETWEEN_STEPS,
    CHECKPOINT,
    COMPILE,
    EVAL,
    FORWARD,
    GC,
    IN_STEP,
    INPUT,
    REGION_PREFIX,
    label,
    region_name,
)

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds
    from traceml.schema.distribution import Distribution

_RESTS: Final = (IN_STEP, BETWEEN_STEPS)
_OUTSIDE_STEP: Final = (BETWEEN_STEPS, EVAL, CHECKPOINT)
_WORTH_NAMING: Final = 0.01

EPOCH_START: Final = "epoch start"
RARE_WAITS: Final = "rare waits for data"

_VERBS: Final = {
    IN_STEP: "passes inside the step in no known phase",
    BETWEEN_STEPS: "passes between steps",
    EVAL: "goes to evaluation or other no-grad forwards",
    CHECKPOINT: "goes to saving checkpoints",
    COMPILE: "goes to compilation",
    GC: "goes to garbage collection",
}


@dataclass(frozen=True)
class Part:
    """One kind of time around the model: its name, the phase it lies in, how it is spread, and its cost."""

    name: str
    phase: str
    spent: Distribution
    cost: Cost


def overhead_bound(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The script's own work around the model takes at least 20 % and 0.5 ms of the period; the largest part is named.

    Counted are: the rest in the step, the time between steps, eval, checkpoint, garbage collection, compilation, all
    regions, and input that comes in a few long waits (the start of an epoch, a stalled loader). The price is that of
    the largest part alone.

    Where all wait for what one rank does alone, that is told instead where it costs more (or nothing else is told).

    Next: fits the part: evaluate or save less often, look inside the region, `persistent_workers=True`, `gc.freeze()`,
    or a `traceml.region` where no name is known yet.
    """
    of_all, of_one = _of_all_ranks(facts, limits), _not_told_yet(alone(facts, limits), facts, limits)
    if of_all is None or of_one is None:
        return of_all or of_one
    return max((of_all, of_one), key=lambda finding: finding.impact.ms if finding.impact else 0.0)


def _not_told_yet(found: Optional[Finding], facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """What one rank does alone, where that rank is not named as a straggler for it."""
    if found is None:
        return None
    named = straggler(facts, limits)
    return None if named is not None and set(found.ranks) <= set(named.ranks) else found


def _of_all_ranks(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    rank = judged_rank(facts, limits)
    if rank is None:
        return None
    parts = _parts(rank, limits)
    total_ns, period_ns = sum(part.cost.mean_ns for part in parts), rank.total_ns / rank.num_steady
    if not parts or total_ns < max(limits.overhead_share * period_ns, limits.min_cost_ns):
        return None
    part, impact = parts[0], price_of(parts[0].cost, rank)
    is_blind = part.phase == IN_STEP and (bool(unseen_compute(rank)) or _may_replay(facts, rank, limits))
    is_unsure = bool(clock_note(facts, rank)) or is_blind
    at_most = WARNING if part.phase in IS_WORK or is_unsure else CRITICAL
    is_ours = part.phase in _RESTS and bool(given_up(rank))  # not the script's: what we missed lies in the rests
    at_most = INFO if is_ours else at_most
    return Finding(
        diagnosis="OVERHEAD_BOUND",
        severity=severity_of(impact, rank, limits, at_most=at_most),
        summary=_summary(part, rank, limits),
        why=_why(part, parts[1:], rank) + _replay_note(part, facts, rank, limits) + clock_note(facts, rank),
        next=_next(part, facts, rank, limits),
        rule=rule_text(overhead_bound),
        evidence=(
            Evidence("work around the model", 100 * total_ns / period_ns, 100 * limits.overhead_share, "%"),
            Evidence("work around the model a step", total_ns / NS_PER_MS, limits.min_cost_ns / NS_PER_MS, "ms"),
            Evidence(part.name, impact.pct, None, "%"),
        ),
        ranks=(rank.state.identity.rank,),
        phases=(part.phase,),
        impact=None if is_ours else impact,
    )


def _parts(rank: RankFacts, limits: Thresholds) -> list[Part]:
    """All parts that cost anything, the largest first."""
    names = [name for name in rank.phases if name in _VERBS or name.startswith(REGION_PREFIX)]
    parts = [Part(units.clean(label(n)), n, rank.phases[n], phase_cost(rank, n)) for n in names]
    if INPUT in rank.phases and not waits_steadily(rank, limits):
        parts.append(Part(EPOCH_START, INPUT, rank.epoch_start, epoch_start_cost(rank)))
    if INPUT in rank.phases and not waits_often(rank, limits):
        is_each = spread_of(rank.phases[INPUT], num_steps=rank.num_steady, limits=limits).is_each
        parts.append(Part(label(INPUT) if is_each else RARE_WAITS, INPUT, rank.phases[INPUT], later_input_cost(rank)))
    return sorted((part for part in parts if part.cost.mean_ns > 0), key=lambda part: -part.cost.mean_ns)


def _summary(part: Part, rank: RankFacts, limits: Thresholds) -> str:
    spread = spread_of(part.spent, num_steps=rank.num_steady, limits=limits)
    if part.phase == INPUT and part.name != EPOCH_START and rank.epoch_start.count:
        # In which steps the waits beside the epochs' starts lie was not kept.
        spread = replace(spread, num_holding=0, total_ns=spread.total_ns - rank.epoch_start.total)
    return sentence(spread, rank, verb=_verb(part), of_step=part.phase not in (*_OUTSIDE_STEP, INPUT), limits=limits)


def _verb(part: Part) -> str:
    if part.phase.startswith(REGION_PREFIX):
        return f"is in the region '{region_name(part.phase)}'"
    if part.phase == INPUT:
        return "goes to the start of epochs" if part.name == EPOCH_START else "waits for data"
    return _VERBS[part.phase]


def _why(part: Part, others: list[Part], rank: RankFacts) -> str:
    period_ns = rank.total_ns / rank.num_steady
    said = [f"{part.name} {part_of(part.cost.mean_ns, period_ns)} a step on average"]
    if part.phase in _RESTS:
        said[0] += ", outside everything TraceML watches"
    shares = [(other.name, other.cost.mean_ns / period_ns) for other in others]
    also = [f"{name} {units.percent(share)}" for name, share in shares if share >= _WORTH_NAMING]
    if also:
        said.append(f"also {', '.join(also)}")
    return "; ".join(said) + (unseen_note(rank) if part.phase in _RESTS else "")


def _next(part: Part, facts: Facts, rank: RankFacts, limits: Thresholds) -> str:  # noqa: PLR0911  # one a part
    """The one action that fits the largest part."""
    if part.phase.startswith(REGION_PREFIX):
        name = region_name(part.phase)
        return f"make '{name}' cheaper or rarer; smaller `traceml.region`s inside it show what in it takes the time"
    if part.phase == INPUT:
        return epoch_advice(facts.loader, rank) if part.name == EPOCH_START else _STALLS
    if part.phase in (EVAL, CHECKPOINT, GC):
        num_steps, each = units.count(part.spent.count), units.duration(part.spent.mean or 0.0)
        return _RARER[part.phase].format(num_steps=num_steps, each=each)
    if part.phase in _RESTS and given_up(rank):
        return (
            "nothing in the script is known to be slow: TraceML itself failed to watch part of it; the fault is below"
        )
    if part.phase == IN_STEP and _may_replay(facts, rank, limits):
        return f"if the step replays a CUDA graph, this is the model's own work: profile it; else {_NAME_IT[IN_STEP]}"
    if part.phase == IN_STEP and FORWARD in unseen_compute(rank) and FORWARD not in rank.state.unwatched:
        return "give `trace_step` the model that runs, and call it as `model(batch)`: no forward of it was seen"
    if part.phase in _RESTS and rank.phase_ns(INPUT) is None:
        return f"{_NAME_IT[part.phase]}; {_WRAP_IT}"
    return _NAME_IT[part.phase]


def _may_replay(facts: Facts, rank: RankFacts, limits: Thresholds) -> bool:
    """Whether the model's own work is hardly seen on the device's clock: it may be in a graph, which nobody calls."""
    return facts.clock == "device" and compute_share(rank) < limits.seen_compute_share


def _replay_note(part: Part, facts: Facts, rank: RankFacts, limits: Thresholds) -> str:
    if part.phase != IN_STEP or not _may_replay(facts, rank, limits):
        return ""
    return (
        "; hardly any forward, backward or optimizer step was seen: replays of a CUDA graph look like this from outside"
    )


_WRAP_IT: Final = (
    "if batches come from no DataLoader, iterate over `traceml.wrap_dataloader(batches)`: it makes input seen"
)
_STALLS: Final = "find what stalled the loader in those steps: slow items, a slow worker, or the storage"
_RARER: Final = {
    EVAL: "evaluate less often or on fewer batches: it ran after {num_steps} steady steps, {each} on average",
    CHECKPOINT: "save less often, or asynchronously: {num_steps} steady steps saved, {each} on average",
    GC: "gc.freeze() before the loop, and gc.collect() seldom where the script calls it: {num_steps} steady steps "
    "paused, {each} on average",
}
_NAME_IT: Final = {
    IN_STEP: 'put `with traceml.region("name"):` around parts of the step, and every model that runs into `trace_step`',
    BETWEEN_STEPS: 'put `with traceml.region("name"):` around what the script does between steps '
    "(logging, batches made by hand): it shows which of it takes the time",
    COMPILE: "find what recompiles: TORCH_LOGS=recompiles names the reason; mark what varies as dynamic",
}
