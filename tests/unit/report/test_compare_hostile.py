"""Holds comparing to one error or a sound answer, whatever numbers and texts a summary holds."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from random import Random
from typing import Any, Callable, Iterator

import pytest
from jsonschema import Draft202012Validator

from tests.unit.report.compared_runs import run_of
from traceml.errors import RunError
from traceml.report.compare.comparison import compare
from traceml.report.compare.schema import comparison_text, json_schema
from traceml.report.contract import BlockInfo, ProcessInfo, RankRow, RanksInfo, Report, ThroughputInfo
from traceml.report.files import plain_text
from traceml.report.trim import trimmed
from traceml.schema.struct import StructError, from_plain, to_plain
from traceml.views.text.columns import width_of
from traceml.views.text.comparison import comparison_card
from traceml.views.text.markdown import comparison_markdown

GOOD = run_of(seed=1, num_steps=24, loader={"num_workers": 4, "batch_size": 8})
ODD: tuple[Any, ...] = (
    0, -1, 1, 0.5, 1e308, -1e308, 1e-308, 5e-324, 1e12, 2**63, -(2**63), None, True, "", "x" * 5000, "\x1b[31m\n", [],
    {}, "2027-13-01",
)  # fmt: skip
SECTIONS = ("run", "step_time", "throughput", "system", "process", "step_memory", "loader")


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        yield from places(item, (*at, key))


def changed(seed: int) -> Any:
    """The good summary with one to three odd values."""
    random, found = Random(seed), copy.deepcopy(to_plain(GOOD))
    for _ in range(random.randint(1, 3)):
        *way, last = random.choice([at for at in places(found) if at[0] in SECTIONS])
        target = found
        for key in way:
            target = target[key]
        target[last] = random.choice(ODD)
    return found


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_odd_values_are_one_error_or_a_sound_answer(first: int) -> None:
    schema, answers = Draft202012Validator(json_schema()), 0
    for seed in range(first, first + 50):
        try:
            found = compare([GOOD], [from_plain(Report, changed(seed))])
        except (StructError, RunError) as error:
            assert str(error)  # noqa: PT017  # either is right
            continue
        answers += 1
        schema.validate(json.loads(comparison_text(found)))
        lines = (comparison_card(found) + comparison_markdown(found)).splitlines()
        assert all(line.isprintable() for line in lines)
        assert [line for line in comparison_card(found).splitlines() if width_of(line) > 80] == []
    assert answers > 2  # the others are refused


ONE_RANK = RanksInfo(0, 0, (RankRow(0, 320, 20.0, {}),))


def edited(**fields: Callable[[Any], Any]) -> Report:
    """A run whose fields of `step_time` were changed, and nothing else that belongs to them."""
    good = run_of(seed=2)
    changed = {name: change(getattr(good.step_time, name)) for name, change in fields.items()}
    return replace(good, step_time=replace(good.step_time, **changed))


def each(**factors: float) -> Callable[[Any], Any]:
    """Blocks with these times by another factor."""

    def change(blocks: tuple[BlockInfo, ...]) -> tuple[BlockInfo, ...]:
        return tuple(
            replace(
                block,
                period_ms=block.period_ms * factors.get("period_ms", 1.0),
                mean_ms={name: ms * factors.get("mean_ms", 1.0) for name, ms in block.mean_ms.items()},
            )
            for block in blocks
        )

    return change


def with_mean(phase: str, factor: float) -> Callable[[Any], Any]:
    def change(rows: Any) -> Any:
        return {**rows, phase: replace(rows[phase], mean_ms=rows[phase].mean_ms * factor)}

    return change


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (edited(blocks=each(period_ms=1.2, mean_ms=1.2)), "do not agree with the mean of input"),
        (edited(blocks=each(mean_ms=0.9)), "do not agree with the mean of input"),
        (edited(blocks=each(period_ms=1.2)), "do not agree with the median of the period"),
        (edited(blocks=each(period_ms=0.8)), "do not agree with the median of the period"),
        (edited(blocks=each(period_ms=2.2), period_ms=lambda p: replace(p, p50=None, max=1e3)), "than its mean allows"),
        (edited(blocks=lambda blocks: blocks * 2), "128 blocks"),
        (edited(blocks=lambda blocks: (replace(blocks[0], steps=100), *blocks[1:])), "more steps than the run has"),
        (edited(ranks=lambda _: ONE_RANK, blocks=lambda blocks: blocks[:1]), "its blocks hold 5 of 320 steady steps"),
        (edited(ranks=lambda _: ONE_RANK, blocks=lambda _: ()), "its blocks hold 0 of 320 steady steps"),
        (edited(blocks=lambda blocks: (replace(blocks[0], period_ms=1e-300), *blocks[1:])), "block 0 is none"),
        (edited(phases=with_mean("input", 1.5)), "do not add up to the period"),
        (edited(phases=lambda rows: {**rows, "step": rows["input"]}), "phases that no run can have"),
        (edited(phases=lambda rows: {k: v for k, v in rows.items() if k != "input"}), "do not add up"),
        (edited(period_ms=lambda p: replace(p, mean=p.mean * 1.5)), "above its maximum"),
        (edited(period_ms=lambda p: replace(p, p50=p.max * 2)), "not in order"),
        (edited(period_ms=lambda p: replace(p, p95=-1.0)), "step_time.period_ms.p95 is not within"),
        (replace(run_of(seed=2), process=ProcessInfo(waited_for_core_pct=400.0)), "process.waited_for_core_pct"),
        (replace(run_of(seed=2), throughput=ThroughputInfo(samples_per_s=1e300)), "throughput.samples_per_s"),
        (replace(run_of(seed=2), throughput=ThroughputInfo(steps_per_s=5.0)), "steps a second do not agree"),
        (run_of(seed=2, world_size=0), "run.world_size"),
        (run_of(seed=2, startup_s=-3.0), "run.startup_s"),
    ],
)  # fmt: skip
def test_numbers_that_contradict_each_other_make_no_verdict(report: Report, reason: str) -> None:
    with pytest.raises(RunError) as caught:
        compare([GOOD], [report])

    assert caught.value.slug == "damaged-summary"
    assert reason in str(caught.value)


def test_a_file_that_was_kept_small_contradicts_nothing() -> None:
    """Its blocks have lost phases under 5 %, and every two, every four, became one."""
    rows = {**{f"region:{at}": 0.6 for at in range(8)}, "input": 9.0, "forward": 4.0, "backward": 6.0}
    whole = run_of(rows, seed=1, noise=0.3)

    small = trimmed(whole, 4_000)

    assert len(small.step_time.blocks) == 16
    assert "region:1" not in small.step_time.blocks[0].mean_ms
    assert compare([whole], [replace(small, run=replace(small.run, name="small"))]).typical is not None


def test_long_names_and_sentences_are_cut_before_they_are_told() -> None:
    long = run_of(seed=2, name="n" * 9_000, folder="f" * 9_000, status="s" * 9_000)
    verdict = replace(long.verdict, diagnosis="D" * 9_000, summary="w " * 9_000, next="x" * 9_000)

    found = compare([GOOD], [replace(long, verdict=verdict)])

    assert len(comparison_text(found)) < 8_000
    assert len(comparison_card(found)) < 4_000
    with pytest.raises(RunError) as caught:
        compare([GOOD], [run_of(seed=2, name="n" * 9_000, steps=0)])
    assert len(str(caught.value)) < 300


def test_json_for_a_terminal_holds_no_control_character_and_reads_back_as_it_was() -> None:
    name = "a\x1b[2J\x9b31m\x7f\u202e\ud800\U000e0001 \u00e9 \U0001f600"

    text = plain_text({"name": name})

    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == {"name": name}
    assert "\u00e9 \U0001f600" in text
