"""Mutates every field of a real summary, each in five ways: the answer is short, or one line, and never a change."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

import pytest

from traceml.analysis import redraw
from traceml.cli.__main__ import main

REAL = Path(__file__).with_name("real_summary.json")  # of 24 steps of a training that sleeps
GONE = object()
TOO_DEEP = "@ a hundred thousand lists @"
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\u202e\ud800\r\n"
MOST_OUT, MOST_LINE = 8_000, 1_000  # characters
STRIDE = 3  # of each kind of harm every third field, another third for the next kind
PLACES = 260  # about so many fields are there; the test must not run dry


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


MUTATIONS: Mapping[str, Callable[[Any], Any]] = {
    "gone": lambda _: GONE,
    "null": lambda _: None,
    "below 0": lambda _: -1,
    "0": lambda _: 0,
    "huge": lambda _: 1e300,
    "long": lambda _: 10**18,
    "ten times": lambda old: old * 10 if isinstance(old, (int, float)) else GONE,
    "a tenth": lambda old: old / 10 if isinstance(old, float) else GONE,
    "true": lambda _: True,
    "text": lambda _: "12",
    "escapes": lambda old: f"{old}{ESCAPES}" if isinstance(old, str) else ESCAPES,
    "a megabyte": lambda _: "x " * (1 << 19),
    "list": lambda old: [old, old],
    "object": lambda old: {ESCAPES: old},
    "nested": lambda _: nested(20),
    "nested too deep": lambda _: TOO_DEEP,
}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field; of a list's items the first and the last."""
    if at:
        yield at
    if isinstance(value, dict):
        entries = list(value.items())
    else:
        entries = [*enumerate(value)][:1] + [*enumerate(value)][1:][-1:] if isinstance(value, list) else []
    for key, item in entries:
        yield from places(item, (*at, key))


def mutated(whole: Any, at: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    found = copy.deepcopy(whole)
    *way, last = at
    target = found
    for key in way:
        target = target[key]
    made = change(target[last])
    if made is GONE:
        del target[last]
    else:
        target[last] = made
    return found


@pytest.mark.parametrize("name", MUTATIONS)
def test_whatever_one_field_of_a_real_summary_is_the_answer_is_short_and_makes_no_change(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redraw, "NUM_DRAWS", 40)  # of 1,000, for speed: what is drawn is the same kind
    whole, bad = json.loads(REAL.read_text(encoding="utf-8")), tmp_path / "bad.json"
    found = list(places(whole))
    assert len(found) > PLACES

    for number, at in [*enumerate(found)][[*MUTATIONS].index(name) % STRIDE :: STRIDE]:
        text = json.dumps(mutated(whole, at, MUTATIONS[name]))
        bad.write_text(text.replace(f'"{TOO_DEEP}"', "[" * 100_000 + "]" * 100_000), encoding="utf-8")
        shape = ([], ["--json"], ["--markdown"])[number % 3]
        sides = [str(REAL), str(bad)][:: 1 if number % 2 else -1]

        code = main(["compare", *shape, *sides, "--fail-on", "regression"])

        out, err = capsys.readouterr()
        told = f"{name} at {at}: {out[:200]}{err[:200]}"
        assert code in (0, 2, 3), told
        assert (err == "") == (code != 2), told
        assert err.count("\n") == (code == 2), told
        assert len(out) < MOST_OUT, told
        assert len(err) < MOST_LINE, told
        assert all(ch.isprintable() or ch == "\n" for ch in out + err), told
        assert "REGRESSION" not in out, told
        assert "IMPROVEMENT" not in out, told
