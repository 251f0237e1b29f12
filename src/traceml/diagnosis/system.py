"""Judges the host and the devices the run uses; says nothing about steps, so no finding here has a price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from traceml.diagnosis.finding import INFO, WARNING, Evidence, Finding
from traceml.diagnosis.price import rule_text
from traceml.schema import units

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts
    from traceml.diagnosis.thresholds import Thresholds


def cpu_saturated(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The CPU is short: the cgroup throttled it in 10 % of the samples, or more tasks than cores were ready in half.

    Next: allow more cores, or use fewer `num_workers` and threads.
    """
    system = facts.system
    if system.num_samples < limits.min_samples:
        return None
    throttled, overrun = system.throttled_share, system.overrun_share
    said = []
    if throttled is not None and throttled >= limits.throttled_share:
        said.append(f"the CPU quota stopped the run in {units.percent(throttled)} of the samples")
    if overrun is not None and overrun >= limits.overrun_share:
        said.append(f"more tasks were ready to run than cores are allowed in {units.percent(overrun)} of the samples")
    if not said:
        return None
    cores = "" if system.num_cores is None else f" ({units.significant(system.num_cores)} cores allowed)"
    return Finding(
        diagnosis="CPU_SATURATED",
        severity=INFO,
        summary="The CPU is short: " + said[0] + ".",
        why="; ".join(said) + cores,
        next="allow more cores, or use fewer loader workers and threads",
        rule=rule_text(cpu_saturated),
        evidence=(
            *_share("throttled samples", throttled, limits.throttled_share),
            *_share("samples with more ready tasks than cores", overrun, limits.overrun_share),
        ),
    )


def gpu_throttled(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """A device of the run ran slower than it could, for a reason other than idling, in at least 10 % of the samples.

    Next: look at its temperature, its power limit and its neighbours.
    """
    system = facts.system
    share = system.device_throttled_share
    if system.num_samples < limits.min_samples or share is None or share < limits.throttled_share:
        return None
    reasons = ", ".join(units.clean(reason) for reason in system.throttle_reasons) or "no reason given"
    return Finding(
        diagnosis="GPU_THROTTLED",
        severity=WARNING,
        summary=f"The device slowed itself down in {units.percent(share)} of the samples.",
        why=f"{_devices(facts)}: {reasons}",
        next="check the device's temperature and power limit (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER)",
        rule=rule_text(gpu_throttled),
        evidence=_share("throttled samples", share, limits.throttled_share),
    )


def gpu_idle(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The run's own devices are busy for less than 30 % of the time.

    Next: the step-time verdict says what they wait for.
    """
    system = facts.system
    busy = system.device_busy_percent_mean
    if system.num_samples < limits.min_samples or busy is None or busy >= limits.device_idle_percent:
        return None
    return Finding(
        diagnosis="GPU_IDLE",
        severity=INFO,
        summary=f"The devices were busy for {units.percent(busy / 100)} of the time.",
        why=f"{_devices(facts)}, over {units.count(system.num_samples)} samples of the whole run",
        next="the step-time verdict says what they wait for",
        rule=rule_text(gpu_idle),
        evidence=(Evidence("busy", busy, limits.device_idle_percent, "%"),),
    )


def host_memory_high(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The run's memory came to at least 90 % of what the host or the cgroup allows.

    Next: fewer `num_workers`, a smaller `prefetch_factor`, or a higher limit; the kernel kills at 100 %.
    """
    used, allowed = facts.system.memory_bytes_max, facts.system.memory_limit_bytes
    if used is None or not allowed or used < limits.host_memory_share * allowed:
        return None
    return Finding(
        diagnosis="HOST_MEMORY_HIGH",
        severity=WARNING,
        summary=f"Host memory came to {units.percent(used / allowed)} of its limit.",
        why=f"{units.size(used)} of {units.size(allowed)} at the most",
        next="use fewer loader workers or less prefetching, or raise the memory limit: the kernel kills at 100 %",
        rule=rule_text(host_memory_high),
        evidence=_share("host memory", used / allowed, limits.host_memory_share),
    )


def normal(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """Nothing stands out in the samples of the host and the devices.

    Next: nothing.
    """
    if not facts.system.num_samples or any(rule(facts, limits) for rule in SYSTEM_RULES):
        return None
    num_samples = facts.system.num_samples
    return Finding(
        diagnosis="NORMAL",
        severity=INFO,
        summary="Nothing stands out on the host.",
        why=f"{units.count(num_samples)} samples" if num_samples > 1 else "1 sample",
        next="nothing to do here",
        rule=rule_text(normal),
    )


def no_data(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The host was never sampled, so nothing is said about it.

    Next: a run of a second or more is sampled; a shorter one is not.
    """
    if facts.system.num_samples or any(rule(facts, limits) for rule in SYSTEM_RULES):
        return None
    return Finding(
        diagnosis="NO_DATA",
        severity=INFO,
        summary="The host was not sampled.",
        why="0 samples",
        next="let the run last longer than a second or two",
        rule=rule_text(no_data),
    )


SYSTEM_RULES = (cpu_saturated, gpu_throttled, gpu_idle, host_memory_high)


def _share(name: str, share: Optional[float], limit: float) -> tuple[Evidence, ...]:
    return () if share is None else (Evidence(name, 100 * share, 100 * limit, "%"),)


def _devices(facts: Facts) -> str:
    return ", ".join(units.clean(name) for name in facts.system.device_names) or "the run's own devices"
