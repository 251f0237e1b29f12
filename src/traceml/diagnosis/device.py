"""Judges what only the device's clock can tell: waiting for copies, and a device that waits for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.finding import Evidence, Finding
from traceml.diagnosis.ground import judged_rank
from traceml.diagnosis.price import NS_PER_MS, Cost, phase_cost, price_of, rule_text, severity_of
from traceml.diagnosis.sentences import compute_share, part_of, profile_snippet, sentence, share_in_words, spread_of
from traceml.schema import units
from traceml.schema.distribution import middle_of
from traceml.schema.phases import GC, H2D

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds
    from traceml.schema.records import LoaderInfo

_HALF: Final = 0.5


def h2d_bound(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The device waits for batches to be copied: h2d is at least 10 % and 0.5 ms of the period, on its own clock.

    On the host's clock a copy may hold the wait for all that was queued before it, so nothing is said there.

    Next: pinned memory with `non_blocking=True`, so that the copy runs beside the step; smaller types where it does
    already.
    """
    rank = judged_rank(facts, limits)
    if rank is None or facts.clock != "device" or H2D not in rank.phases:
        return None
    impact = price_of(phase_cost(rank, H2D), rank)
    if impact.pct < 100 * limits.h2d_share or impact.ms * NS_PER_MS < limits.min_cost_ns:
        return None
    spread = spread_of(rank.phases[H2D], num_steps=rank.num_steady, limits=limits)
    compared = part_of(rank.mean_ns(H2D) or 0.0, rank.total_ns / rank.num_steady)
    return Finding(
        diagnosis="H2D_BOUND",
        severity=severity_of(impact, rank, limits),
        summary=sentence(spread, rank, verb="waits for copies to the device", limits=limits),
        why=f"host to device {compared} a step on the device's clock; {_pinned_in_words(facts.loader)}",
        next=_copy_advice(facts.loader),
        rule=rule_text(h2d_bound),
        evidence=(
            Evidence("host to device", impact.pct, 100 * limits.h2d_share, "%"),
            Evidence("host to device a step", impact.ms, limits.min_cost_ns / NS_PER_MS, "ms"),
        ),
        ranks=(rank.state.identity.rank,),
        phases=(H2D,),
        impact=impact,
    )


def host_bound(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The device waits for the host to queue work: it is under 0.2 ms behind it in half of the steps, and 15 % idle.

    Idle is what the driver says of the run's own devices while the steady steps ran (at least 5 samples, one a second),
    less all time on the device's clock that is not forward, backward or optimizer: that has verdicts of its own. Where
    the driver cannot be asked nothing is said. The price is an upper bound.

    Next: fewer, larger kernels (`torch.compile` with CUDA graphs, a larger batch); a profile shows what the host does.
    """
    rank = judged_rank(facts, limits)
    if rank is None:
        return None
    near, idle = near_share(facts, rank, limits), _idle_share(facts, rank, limits)
    if near is None or idle is None or near < limits.near_steps_share or idle < limits.host_idle_share:
        return None
    means = tuple(idle * chunk.period_mean_ns for chunk in rank.chunks)
    impact = price_of(Cost(idle * rank.total_ns / rank.num_steady, means), rank)
    return Finding(
        diagnosis="HOST_BOUND",
        severity=severity_of(impact, rank, limits),
        summary=f"{share_in_words(idle)} of each step the device waits for the host to give it work: "
        f"at most {part_of(impact.ms * NS_PER_MS, rank.total_ns / rank.num_steady)}.",
        why=_host_why(facts, rank, near),
        next=_host_next(rank, idle, limits),
        rule=rule_text(host_bound),
        evidence=(
            Evidence("steps with a run-ahead under 0.2 ms", 100 * near, 100 * limits.near_steps_share, "%"),
            Evidence("idle in the model's own work", 100 * idle, 100 * limits.host_idle_share, "%"),
        ),
        ranks=(rank.state.identity.rank,),
        impact=impact,
    )


def near_share(facts: Facts, rank: RankFacts, limits: Thresholds) -> Optional[float]:
    """The share (0..1) of steps whose end the device reached within 0.2 ms; None without the device's clock.

    A step without an upper bound is not near: what is not bounded is not small.
    """
    if facts.clock != "device" or rank.device is None or not rank.device.num_steps:
        return None
    high = rank.device.run_ahead_high
    return sum(times for bucket, times in high if middle_of(bucket) < limits.near_ns) / rank.device.num_steps


def may_wait_for_host(facts: Facts, rank: RankFacts, limits: Thresholds) -> str:
    """What must be said where the device is never far behind and nobody knows how busy it is; else nothing."""
    near = near_share(facts, rank, limits)
    if near is None or near < limits.near_steps_share or _idle_share(facts, rank, limits) is not None:
        return ""
    return (
        f"; the device is less than 0.2 ms behind the host in {units.percent(near)} of the steps, so it may wait for "
        "the host: how busy it is was not measured"
    )


def _idle_share(facts: Facts, rank: RankFacts, limits: Thresholds) -> Optional[float]:
    """The share (0..1) of the steady time in which the device idles within the model's own work; None is not known."""
    busy = facts.system.device_busy_percent_steady
    if facts.clock != "device" or busy is None or facts.system.num_device_samples_steady < limits.min_samples:
        return None
    return max(0.0, compute_share(rank) - busy / 100)


def _host_why(facts: Facts, rank: RankFacts, near: float) -> str:
    busy, number = facts.system.device_busy_percent_steady or 0.0, facts.system.num_device_samples_steady
    said = (
        f"the device is less than 0.2 ms behind the host in {units.percent(near)} of the steps, and busy for "
        f"{units.percent(busy / 100)} of the time ({units.count(number)} samples of the driver), while forward, "
        f"backward and optimizer take {units.percent(compute_share(rank))} on its clock"
    )
    pauses = rank.wall.share(GC) or 0.0
    return f"{said}; garbage collection takes {units.percent(pauses)} of the host's time" if pauses >= 0.01 else said  # noqa: PLR2004  # worth naming


def _host_next(rank: RankFacts, idle: float, limits: Thresholds) -> str:
    if (rank.wall.share(GC) or 0.0) >= _HALF * idle:
        return "gc.freeze() before the loop and gc.collect() by hand: the host's pauses are garbage collection"
    return (
        'queue less: torch.compile(model, mode="reduce-overhead") (CUDA graphs), or a larger batch; '
        f"to see what the host does, {profile_snippet(rank, limits)}"
    )


def _pinned_in_words(loader: Optional[LoaderInfo]) -> str:
    if loader is None or loader.pin_memory is None:
        return "whether the batches are pinned is not known"
    return f"the loader has pin_memory={loader.pin_memory}"


def _copy_advice(loader: Optional[LoaderInfo]) -> str:
    if loader is not None and loader.pin_memory:
        return (
            "copy with .to(device, non_blocking=True) before the batch is needed (the next one on a stream of its "
            "own), or copy less: uint8 instead of float, converted on the device"
        )
    return "pin_memory=True in the loader, and .to(device, non_blocking=True)"
