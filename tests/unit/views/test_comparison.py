"""Holds the text and the Markdown of a comparison to its golden files, and to any name a run can have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.report.compared_runs import BASE_MS, BUSY, on_device, run_of, slower
from traceml.report.compare.comparison import compare
from traceml.report.compare.contract import Comparison
from traceml.report.contract import BytesInfo, RankRow, RanksInfo, Report, StepMemoryInfo
from traceml.views.text.columns import width_of
from traceml.views.text.comparison import comparison_card
from traceml.views.text.markdown import comparison_markdown

GOLDEN = Path(__file__).parent / "comparisons"
GIB = 1 << 30
STARVED = BUSY[0], replace(BUSY[1], waited_for_core_pct=41.0)
NAMES = (
    "regression", "improvement", "same", "undecided", "mixed", "incomparable", "repeats", "seconds", "ranks", "alike",
    "moved", "short", "starved", "wall",
)  # fmt: skip
NASTY = "<script>alert(1)</script> | **x** `y` [a](http://b) @all #1 \x1b[31m\n\u202e"


def memory(gib: float) -> StepMemoryInfo:
    return StepMemoryInfo(
        None, BytesInfo(int(gib * GIB), int(gib * GIB)), None, BytesInfo(None, int(1.1 * gib * GIB)), 24 * GIB,
        None, None, "cuda",
    )  # fmt: skip


def ranked(report: Report, worst_ms: float) -> Report:
    rows = (RankRow(3, 320, 20.0, {"sync": 20.0 - worst_ms}), RankRow(0, 320, 20.0, {"sync": 5.0}))
    return replace(report, step_time=replace(report.step_time, ranks=RanksInfo(0, 3, rows)))


def compared(name: str) -> Comparison:
    """The comparison that a golden file shows."""
    loaders = {"num_workers": 4, "batch_size": 32}, {"num_workers": 0, "batch_size": 32}
    base = replace(run_of(seed=1, name="vit-old", loader=loaders[0]), step_memory=memory(3.3))
    new: dict[str, Any] = {"seed": 2, "name": "vit-new"}
    slow = replace(run_of(slower("input", 6.0), loader=loaders[1], **new), step_memory=memory(3.4))
    if name == "repeats":
        sides = [
            [
                run_of(
                    mean_ms,
                    seed=2 * at + side,
                    name=f"{word}-{at + 1}",
                    started_at=f"2027-01-15T08:{2 * at + side:02d}:00Z",
                )
                for at in range(5)
            ]
            for side, (word, mean_ms) in enumerate((("old", BASE_MS), ("new", slower("optimizer", 0.5))))
        ]
        return compare(sides[0], sides[1])
    long = {phase: 1000 * ms for phase, ms in BASE_MS.items()}
    sides_of: dict[str, tuple[Report, Report]] = {
        "regression": (base, slow),
        "improvement": (slow, base),
        "same": (base, run_of(**new)),
        "undecided": (
            run_of(noise=0.1, seed=1, beside=BUSY, name="vit-old"),
            run_of(slower("input", 0.6), noise=0.1, beside=BUSY, **new),
        ),
        "mixed": (base, run_of(**new, factors=[1.0 if at % 8 else 6.0 for at in range(320)])),
        "incomparable": (base, run_of(**new, world_size=2, samples=64.0)),
        "seconds": (run_of({**long, "eval": 0.0}, seed=1), run_of({**long, "eval": 4000.0}, seed=2)),
        "alike": (
            run_of(seed=1, torch_version="2.12.0"),
            run_of({phase: 1.08 * ms for phase, ms in BASE_MS.items()}, seed=2, torch_version="2.13.0"),
        ),
        "moved": (run_of(seed=1), run_of({**BASE_MS, "input": 5.0, "forward": 7.0}, seed=2)),
        "short": (run_of(seed=1), run_of(seed=2, num_steps=5)),
        "starved": (base, run_of(slower("input", 9.0), **new, beside=STARVED)),
        "wall": (run_of(seed=1), on_device(run_of(seed=2), wall_ms=25.0)),
        "ranks": (
            ranked(run_of(seed=1, world_size=4), 16.0),
            ranked(
                run_of(slower("backward", 3.0), seed=2, world_size=4, status="killed", ended_by="signal SIGKILL"), 19.0
            ),
        ),
    }
    return compare([sides_of[name][0]], [sides_of[name][1]])


@pytest.mark.parametrize("name", NAMES)
def test_the_comparison_is_what_its_golden_file_shows(name: str) -> None:
    assert comparison_card(compared(name)) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_the_markdown_is_what_its_golden_file_shows() -> None:
    found = comparison_markdown(compared("regression"))

    assert found == (GOLDEN / "regression.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_wider_than_80_columns_and_none_ends_in_blanks(name: str) -> None:
    lines = comparison_card(compared(name)).splitlines()

    assert [line for line in lines if width_of(line) > 80 or line != line.rstrip()] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_without_blocks_gets_ascii(name: str) -> None:
    assert comparison_card(compared(name), ascii_only=True).isascii()


def test_no_name_takes_over_a_terminal_or_a_page() -> None:
    before = run_of({**BASE_MS, f"region:{NASTY}": 4.0}, seed=1, name=NASTY, folder=NASTY)
    after = run_of({**BASE_MS, f"region:{NASTY}": 9.0}, seed=2, name=NASTY, hostname=NASTY, torch_version=NASTY)

    found = compare([before], [after])

    text, markdown = comparison_card(found), comparison_markdown(found)
    assert found.verdict.phase == f"region:{NASTY}"
    assert all(line.isprintable() for line in text.splitlines())
    assert [line for line in text.splitlines() if width_of(line) > 80] == []
    assert not any(sign in markdown for sign in ("<script", "`y`", "](http", "@all", "\x1b", "\u202e"))
    assert {line.count("|") for line in markdown.splitlines() if line.startswith("|")} == {6}


def test_the_markdown_says_which_runs_were_compared() -> None:
    many = [run_of(seed=at, name=f"old-{at}", started_at=f"2027-01-15T08:{2 * at:02d}:00Z") for at in range(12)]

    found = comparison_markdown(compare(many, [run_of(seed=20, name="new")]))

    named = ", ".join(f"old-{at}" for at in range(10))
    assert f"\n- runs: {named} and 2 more → new\n" in found


def test_in_markdown_our_own_command_is_code_and_no_name_is() -> None:
    found = comparison_markdown(compared("undecided"))

    assert "`traceml compare A1 ... A9 --against B1 ... B9` (`--help` shows the loop)" in found
    assert "`" not in comparison_markdown(compare([run_of(seed=1, name="`rm`")], [run_of(seed=2, name="`--x`")]))


def test_in_markdown_no_address_is_a_link() -> None:
    bad = run_of(seed=2, name="https://a.b HTTP://c www.d.e", hostname="node-1")

    found = comparison_markdown(compare([run_of(seed=1)], [bad]))

    assert "https&#58;//a.b HTTP&#58;//c www&#46;d.e" in found
    assert "://" not in found


def test_in_markdown_the_column_of_intervals_holds_one_in_every_row() -> None:
    rows = [line for line in comparison_markdown(compared("regression")).splitlines() if " ms | " in line]

    assert len(rows) == 5
    assert all("| &#91;" in row for row in rows)
