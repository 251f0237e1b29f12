"""Tests how one verdict is chosen of all findings."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceml.diagnosis
from tests.builders import facts_of_steps, loader_info, rank_state, step_ms
from traceml.analysis.facts import Facts, SystemFacts
from traceml.diagnosis.finding import SEVERITIES
from traceml.diagnosis.thresholds import LIMITS, Thresholds
from traceml.diagnosis.verdict import RULES, diagnose

if TYPE_CHECKING:
    from traceml.schema.records import StepRecord

COMPUTES = [step_ms(input=0.1, forward=30, backward=50)] * 40
MEMORY_HIGH = SystemFacts(num_samples=9, memory_bytes_max=99, memory_limit_bytes=100)


def test_the_largest_price_wins_and_the_others_stay_findings() -> None:
    facts = facts_of_steps([step_ms(input=30, between_steps=40, forward=30)] * 40)

    found = diagnose(facts)

    assert found.verdict.diagnosis == "OVERHEAD_BOUND"
    assert [finding.diagnosis for finding in found.step_time] == ["OVERHEAD_BOUND", "INPUT_BOUND"]


def test_the_largest_price_wins_over_a_smaller_one_that_is_more_severe() -> None:
    facts = facts_of_steps([step_ms(input=33, checkpoint=45, forward=22)] * 40)

    found = diagnose(facts)

    assert [(f.diagnosis, f.severity) for f in found.step_time] == [
        ("OVERHEAD_BOUND", "warning"),
        ("INPUT_BOUND", "critical"),
    ]
    assert found.verdict == found.step_time[0]


def test_compute_bound_is_said_only_when_no_cause_fires() -> None:
    facts = facts_of_steps([step_ms(input=25, forward=75)] * 40)

    assert [finding.diagnosis for finding in diagnose(facts).step_time] == ["INPUT_BOUND"]


def test_the_most_severe_section_gives_the_verdict() -> None:
    facts = replace(facts_of_steps(COMPUTES), system=MEMORY_HIGH)

    assert diagnose(facts).verdict.diagnosis == "HOST_MEMORY_HIGH"
    assert diagnose(facts).step_time[0].diagnosis == "COMPUTE_BOUND"


def test_step_time_wins_a_tie() -> None:
    waits = facts_of_steps([step_ms(input=15, forward=85)] * 40)

    found = diagnose(replace(waits, system=MEMORY_HIGH))

    assert (found.verdict.diagnosis, found.verdict.severity) == ("INPUT_BOUND", "warning")


def test_a_normal_host_never_hides_the_step_time() -> None:
    facts = replace(facts_of_steps(COMPUTES), system=SystemFacts(num_samples=9))

    assert diagnose(facts).verdict.diagnosis == "COMPUTE_BOUND"


def test_other_limits_give_another_verdict() -> None:
    facts = facts_of_steps([step_ms(input=15, forward=85)] * 40)

    assert diagnose(facts, replace(LIMITS, input_share=0.2)).verdict.diagnosis == "COMPUTE_BOUND"


def test_the_price_holds_its_interval() -> None:
    steps = [step_ms(input=20 + i % 7, forward=50) for i in range(200)]

    impact = diagnose(facts_of_steps(steps)).verdict.impact

    assert impact is not None
    assert impact.low_ms < impact.ms < impact.high_ms
    assert impact.low_ms == pytest.approx(impact.ms, rel=0.1)


TIMES = st.one_of(st.none(), st.integers(0, 10**10))


@st.composite
def any_step(draw: st.DrawFn) -> StepRecord:
    """A step of any phases, failed or not; its epoch start is part of its input."""
    names = ("input", "forward", "backward", "sync", "optimizer", "eval", "checkpoint", "compile", "gc", "in_step")
    times: dict[str, Optional[int]] = {name: draw(TIMES) for name in names}
    record = step_ms(
        regions={0: draw(st.integers(0, 10**6)) / 1e6} if draw(st.booleans()) else None,
        failed_in=draw(st.sampled_from([None, None, None, "forward"])),
        num_micro_batches=draw(st.integers(0, 4)),
        between_steps=draw(st.integers(0, 10**10)) / 1e6,
    )
    given_ns = tuple(times.get(name, ns) for name, ns in zip(_PHASES, record.phase_ns))
    period_ns = sum(ns or 0 for ns in given_ns) + sum(ns for _, ns in record.region_ns)
    return record._replace(
        phase_ns=given_ns, period_ns=period_ns, epoch_start_ns=draw(st.integers(0, times["input"] or 0))
    )


_PHASES = (
    *("input", "h2d", "forward", "backward", "sync", "optimizer", "eval", "checkpoint", "compile", "gc", "in_step"),
    "between_steps",
)


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    """Facts of any steps, repeated, with any loader, host and device."""
    kinds = draw(st.lists(any_step(), max_size=5))
    loader = loader_info(draw(st.one_of(st.none(), st.integers(0, 40)))) if draw(st.booleans()) else None
    device = draw(st.sampled_from(["cpu", "cuda:0"]))
    facts = facts_of_steps(
        kinds * draw(st.integers(1, 30)),
        state=rank_state(loader=loader, device=device, regions={0: draw(st.text(max_size=5))}),
        world_size=draw(st.sampled_from([1, 1, 4])),
        clock=draw(st.sampled_from(["host", "device"])),
        unsure=draw(st.sampled_from(["", "", "", "no optimizer was seen"])),
    )
    share = st.one_of(st.none(), st.floats(0, 1))
    system = SystemFacts(
        num_samples=draw(st.integers(0, 20)),
        num_cores=draw(st.one_of(st.none(), st.floats(0.1, 256))),
        throttled_share=draw(share),
        overrun_share=draw(share),
        device_throttled_share=draw(share),
        device_busy_percent_mean=draw(st.one_of(st.none(), st.floats(0, 100))),
        memory_bytes_max=draw(st.one_of(st.none(), st.integers(0, 10**12))),
        memory_limit_bytes=draw(st.one_of(st.none(), st.integers(0, 10**12))),
    )
    return replace(facts, system=system)


@given(any_facts())
def test_any_facts_get_exactly_one_verdict_with_a_sentence_and_a_next_step(facts: Facts) -> None:
    found = diagnose(facts)

    assert found.verdict in (found.step_time[0], found.system[0])
    for finding in (*found.step_time, *found.system):
        assert finding.diagnosis in RULES
        assert finding.severity in SEVERITIES
        assert finding.summary.endswith(".")
        assert all((finding.why, finding.next, finding.rule))
        assert "\n" not in finding.summary + finding.why + finding.next


@given(any_facts())
def test_a_price_is_never_more_than_the_period_and_lies_in_its_interval(facts: Facts) -> None:
    for finding in diagnose(facts).step_time:
        if finding.impact is not None:
            assert 0 < finding.impact.pct <= 100.000001
            assert 0 <= finding.impact.low_ms <= finding.impact.ms <= finding.impact.high_ms
            assert 1 <= finding.impact.speedup <= 1000.000001


@given(any_facts())
def test_each_step_is_said_only_where_the_typical_step_pays(facts: Facts) -> None:
    rank = facts.median_rank
    for finding in diagnose(facts).step_time:
        if "of each step" in finding.summary:
            assert rank is not None
            (phase,) = finding.phases
            typical = rank.phases[phase].quantile(0.5, num_zeros=rank.num_without(phase))
            assert typical is not None
            assert typical >= 0.49 * (rank.mean_ns(phase) or 0)


@pytest.mark.parametrize(("name", "rule"), RULES.items())
def test_every_rule_explains_itself_and_says_what_to_do_next(name: str, rule: object) -> None:
    text = rule.__doc__ or ""

    assert rule.__name__ == name.lower()  # type: ignore[attr-defined]  # a rule is a function
    assert "Next: " in text
    assert "\n\n" in text


def test_every_limit_is_defended_by_a_sentence() -> None:
    source = Path(traceml.diagnosis.__file__).with_name("thresholds.py").read_text(encoding="utf-8")

    for field in fields(Thresholds):
        assert re.search(rf"#: .+\n    {field.name}: ", source), field.name
