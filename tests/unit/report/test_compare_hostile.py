"""Holds comparing to one error or a sound answer, whatever numbers and texts a summary holds."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any, Iterator

import pytest
from jsonschema import Draft202012Validator

from tests.unit.report.compared_runs import run_of
from traceml.errors import RunError
from traceml.report.compare.comparison import compare
from traceml.report.compare.schema import comparison_text, json_schema
from traceml.report.contract import Report
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
