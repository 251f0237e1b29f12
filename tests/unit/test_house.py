"""Holds the house to its style: docstrings first, files that fit, doors that define nothing, nothing left undone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "traceml"
MAX_LINES = 400
VAGUE = {"utils", "util", "helpers", "helper", "managers", "manager", "common", "misc"}
SENTENCE = re.compile(r'r?"""\S.*[.:](""")?$')
UNDONE = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
DANGEROUS = re.compile(
    r"^\s*(import|from) (pickle|marshal|shelve)\b|\bshell=True|(?<![.\w])(eval|exec)\(", re.MULTILINE
)


def python_files() -> dict[str, str]:
    """The text of every Python file of the project, by its path."""
    paths = (path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(paths)}


def doors() -> dict[str, ast.Module]:
    """Every package's __init__ but traceml's own, which hands on the public names."""
    paths = (path for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)
    return {path.parent.name: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_every_file_begins_with_the_sentence_that_says_what_it_does() -> None:
    files = {name: text for name, text in python_files().items() if text or name.startswith("src/")}
    wrong = [name for name, text in files.items() if not SENTENCE.match(text.partition("\n")[0])]

    assert wrong == []


def test_every_file_fits_into_400_lines() -> None:
    long = {name: len(text.splitlines()) for name, text in python_files().items()}

    assert {name: num_lines for name, num_lines in long.items() if num_lines > MAX_LINES} == {}


def test_a_door_says_what_goes_in_and_out_and_what_it_knows_and_holds() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    said = {name: ast.get_docstring(door) or "" for name, door in doors().items() if name in rooms}

    assert [n for n, text in said.items() if not all(f"{w}:" in text for w in ("In", "Out", "Knows", "Holds"))] == []


def test_a_door_defines_nothing_but_that_of_report_which_can_be_called() -> None:
    makes = {
        name: [ast.unparse(node) for node in door.body[1:] if not isinstance(node, (ast.Import, ast.ImportFrom))]
        for name, door in doors().items()
        if name != "report"  # the api has a function of that name
    }

    assert {name: [c for c in code if not c.startswith("__all__ =")] for name, code in makes.items()} == {
        name: [] for name in makes
    }


def test_every_file_is_named_for_a_thing() -> None:
    words = {name: set(re.split(r"[/_.]", name)) for name in python_files()}

    assert [name for name, found in words.items() if found & VAGUE] == []


def test_nothing_is_left_undone() -> None:
    assert [name for name, text in python_files().items() if UNDONE.search(text)] == []


def test_no_source_file_unpickles_evaluates_or_starts_a_shell() -> None:
    source = {name: text for name, text in python_files().items() if name.startswith("src/")}

    assert [name for name, text in source.items() if DANGEROUS.search(text)] == []
