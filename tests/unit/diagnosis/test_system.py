"""Tests the rules of host and devices: each fires, stays quiet just below its limits, and without data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import facts_of_steps, step_ms
from traceml.analysis.facts import Facts, SystemFacts
from traceml.diagnosis.system import cpu_saturated, gpu_idle, gpu_throttled, host_memory_high, no_data, normal
from traceml.diagnosis.thresholds import LIMITS
from traceml.diagnosis.verdict import diagnose


def sampled(**values: Any) -> Facts:
    """A run with 20 samples of the host that say this."""
    return replace(facts_of_steps([step_ms(forward=10)] * 40), system=SystemFacts(**{"num_samples": 20, **values}))


CASES = [
    (cpu_saturated, {"throttled_share": 0.10}, {"throttled_share": 0.099}),
    (cpu_saturated, {"overrun_share": 0.50}, {"overrun_share": 0.49}),
    (gpu_throttled, {"device_throttled_share": 0.10}, {"device_throttled_share": 0.099}),
    (gpu_idle, {"device_busy_percent_mean": 29.9}, {"device_busy_percent_mean": 30.0}),
    (
        host_memory_high,
        {"memory_bytes_max": 90, "memory_limit_bytes": 100},
        {"memory_bytes_max": 89, "memory_limit_bytes": 100},
    ),
]


@pytest.mark.parametrize(("rule", "at_limit", "below"), CASES)
def test_each_rule_fires_from_its_limit_on(rule: Any, at_limit: dict[str, Any], below: dict[str, Any]) -> None:
    assert rule(sampled(**at_limit), LIMITS) is not None
    assert rule(sampled(**below), LIMITS) is None


@pytest.mark.parametrize("rule", [cpu_saturated, gpu_throttled, gpu_idle, host_memory_high, normal])
def test_without_samples_no_rule_speaks(rule: Any) -> None:
    assert rule(replace(sampled(), system=SystemFacts()), LIMITS) is None


@pytest.mark.parametrize(("rule", "values"), [(rule, values) for rule, values, _ in CASES[:4]])
def test_a_share_of_four_samples_is_a_guess(rule: Any, values: dict[str, Any]) -> None:
    assert rule(sampled(num_samples=4, **values), LIMITS) is None


def test_a_memory_limit_that_is_not_known_or_nothing_is_never_reached() -> None:
    assert host_memory_high(sampled(memory_bytes_max=90), LIMITS) is None
    assert host_memory_high(sampled(memory_bytes_max=90, memory_limit_bytes=0), LIMITS) is None


def test_memory_and_a_throttled_device_are_warnings_and_the_rest_is_information() -> None:
    facts = sampled(
        throttled_share=0.5,
        device_throttled_share=0.5,
        throttle_reasons=("sw_power_cap",),
        device_busy_percent_mean=3.0,
        memory_bytes_max=99,
        memory_limit_bytes=100,
    )

    found = {finding.diagnosis: finding.severity for finding in diagnose(facts).system}

    assert found == {
        "GPU_THROTTLED": "warning",
        "HOST_MEMORY_HIGH": "warning",
        "CPU_SATURATED": "info",
        "GPU_IDLE": "info",
    }
    assert all(finding.impact is None for finding in diagnose(facts).system)


def test_a_quiet_host_is_normal() -> None:
    (found,) = diagnose(sampled(cpu_percent_mean=20.0)).system

    assert (found.diagnosis, found.severity, found.why) == ("NORMAL", "info", "20 samples")


def test_a_host_that_was_never_sampled_is_no_data() -> None:
    facts = replace(sampled(), system=SystemFacts())

    assert no_data(facts, LIMITS) is not None
    assert no_data(sampled(), LIMITS) is None
    assert [finding.diagnosis for finding in diagnose(facts).system] == ["NO_DATA"]


def test_the_reason_of_a_throttled_device_is_said() -> None:
    found = gpu_throttled(
        sampled(device_throttled_share=0.4, device_names=("H200",), throttle_reasons=("thermal",)), LIMITS
    )

    assert found is not None
    assert found.why == "H200: thermal"
