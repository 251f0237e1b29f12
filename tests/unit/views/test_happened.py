"""Holds each kind of event to good English, once and more often."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import traceml
from traceml.report.contract import EventInfo
from traceml.schema import stalls
from traceml.schema.records import HALTED
from traceml.views.text.happened import MANY, event_in_words, of_any_rank

SOURCE = Path(traceml.__file__).parent
#: Each kind: once, and three times.
TOLD = {
    "evaluation": ("evaluation of 1.55 s at step 41", "3 evaluations (median 1.55 s)"),
    "checkpoint": ("checkpoint of 1.55 s at step 41", "3 checkpoints (median 1.55 s)"),
    "epoch start": ("epoch start of 1.55 s at step 41", "3 epoch starts (median 1.55 s)"),
    "garbage collection": ("garbage collection of 1.55 s at step 41", "3 garbage collections (median 1.55 s)"),
    "failed step": ("step 41 failed", "3 failed steps"),
    "slow step": ("slow step of 1.55 s at step 41", "3 slow steps (median 1.55 s)"),
    "halted": ("stop of 1.55 s at step 41", "3 stops (median 1.55 s)"),
    "given up": ("signal given up of 1.55 s at step 41", "3 signals given up (median 1.55 s)"),
    "wait": ("wait of 1.55 s at step 41", "3 waits (median 1.55 s)"),
    "now eager": ("fall back to eager of 1.55 s at step 41", "3 falls back to eager (median 1.55 s)"),
    "out of memory": ("out of memory of 1.55 s at step 41", "3 allocations without memory (median 1.55 s)"),
    "recompilation": ("recompilation of 1.55 s at step 41", "3 recompilations (median 1.55 s)"),
    "hang": ("hang of 1.55 s at step 41", "3 hangs (median 1.55 s)"),
    "wait for a rank": ("wait for a rank of 1.55 s at step 41", "3 waits for a rank (median 1.55 s)"),
    "first death": ("first death of 1.55 s at step 41", "3 first deaths (median 1.55 s)"),
    "death": ("death of 1.55 s at step 41", "3 further deaths (median 1.55 s)"),
}


def kinds_in_the_source() -> set[str]:
    """What the code gives `Event(...)` and `_event(...)` as a kind, the constants of `stalls` for those it computes."""
    found = {*stalls.GROWING, *stalls.DEATHS}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and _name(node.func) in ("Event", "_event"):
                found |= _texts(node.args[0])
            elif isinstance(node, ast.Assign) and [_name(target) for target in node.targets] == ["kind"]:
                found |= _texts(node.value) if "analysis" in path.parts else set()
    return found


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _texts(node: ast.expr) -> set[str]:
    if isinstance(node, ast.IfExp):
        return _texts(node.body) | _texts(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def test_every_kind_that_the_code_makes_has_its_words() -> None:
    found = kinds_in_the_source()

    assert {"halted", "now eager", "recompilation", "evaluation", "death"} <= found
    assert found == set(MANY) == set(TOLD)


@pytest.mark.parametrize("kind", TOLD)
def test_a_kind_is_told_in_english_once_and_more_often(kind: str) -> None:
    event = EventInfo(kind, 41, 0, 1550.0)

    assert (event_in_words(event), event_in_words(replace(event, count=3))) == TOLD[kind]


@pytest.mark.parametrize("kind", [kind for kind in TOLD if kind != "failed step"])
def test_a_kind_without_a_time_is_told_without_one(kind: str) -> None:
    event = EventInfo(kind, 41, 0, None, 1, "why")

    assert event_in_words(event) == TOLD[kind][0].replace(" of 1.55 s", "") + " (why)"


@pytest.mark.parametrize(
    ("why", "told"),
    [("stopped", ""), ("traced", " (in a debugger)"), ("stopped and traced", " (some in a debugger)")],
)
def test_stops_say_why_only_where_that_is_news(why: str, told: str) -> None:
    assert event_in_words(EventInfo(HALTED, 41, 0, 1550.0, 2, why)) == f"2 stops (median 1.55 s){told}"


def test_a_kind_of_a_later_version_comes_so_many_times() -> None:
    assert event_in_words(EventInfo("lost its way", 41, 0, 1550.0, 3)) == "lost its way, 3 times (median 1.55 s)"


def test_an_allocation_without_room_comes_before_whatever_took_longer() -> None:
    events = [EventInfo("evaluation", 10, 0, 900.0), EventInfo("out of memory", 41, 0, None, text="2.0 GiB wanted")]

    assert [event.kind for event in of_any_rank(events)] == ["out of memory", "evaluation"]
