"""Tests the words of the question for the panel and of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceml.schema.panel import BACKGROUNDS, COLOURS, PanelRequest
from traceml.wire import panel

REQUESTS = st.builds(
    PanelRequest,
    columns=st.integers(10, 1000),
    rows=st.integers(1, 100),
    colours=st.sampled_from(COLOURS),
    background=st.sampled_from(BACKGROUNDS),
    ascii=st.booleans(),
)


@given(REQUESTS)
def test_a_question_is_heard_as_it_was_asked(request: PanelRequest) -> None:
    line = json.dumps(panel.question(request))

    assert panel.heard(json.loads(line)) == request


@given(st.lists(st.text()))
def test_an_answer_is_one_line_of_ascii_that_gives_the_rows_back(rows: list[str]) -> None:
    line = panel.answer(rows)

    assert line.isascii()
    assert line.index(b"\n") == len(line) - 1
    assert panel.rows_of(line) == tuple(rows)


@pytest.mark.parametrize("asked", [None, True, [], {}, {"columns": 80}, {"columns": "80", "rows": 8}])
def test_a_question_without_sizes_is_none(asked: Any) -> None:
    assert panel.heard({"panel": asked}) is None


def test_sizes_are_kept_within_reason_and_unknown_powers_are_the_least() -> None:
    found = panel.heard({"panel": {"columns": 10**9, "rows": -3, "colours": "all", "background": 7, "ascii": "yes"}})

    assert found == PanelRequest(1000, 1, "none", "dark", ascii=False)


@pytest.mark.parametrize("line", [b"TraceML: step 3", b'{"panel": [', b'{"panel": [1]}', b'{"panel": ["a"]', b""])
def test_any_other_line_is_no_panel(line: bytes) -> None:
    assert panel.rows_of(line) is None
