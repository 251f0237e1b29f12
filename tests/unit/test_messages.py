"""Holds docs/messages.md complete in both directions: every verdict and error slug, and none that does not exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from traceml.diagnosis.price import rule_text
from traceml.diagnosis.verdict import RULES

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, str]:
    """The text under each third-level heading, on one line."""
    text = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    return {name: " ".join(body.split()) for name, body in SECTION.findall(text)}


def slugs() -> dict[str, str]:
    """Every slug that the source gives an error, and the file; one that is no literal stands as its code."""
    found = {}
    for path in (ROOT / "src" / "traceml").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == "slug" and not _is_handed_on(keyword.value):
                        found[_literal(keyword.value)] = path.name
    return found


def _is_handed_on(value: ast.expr) -> bool:
    """`super().__init__(message, slug=slug)`: the literal stands where that was called."""
    return isinstance(value, ast.Name) and value.id == "slug"


def _literal(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)


def test_every_verdict_and_every_error_is_explained_and_nothing_else() -> None:
    assert set(sections()) == set(RULES) | set(slugs())


def test_no_name_is_explained_twice() -> None:
    text = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")

    names = re.findall(r"^### (\S+)$", text, re.MULTILINE)

    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", RULES)
def test_a_verdict_is_explained_with_the_rules_own_text(name: str) -> None:
    assert rule_text(RULES[name]) in sections()[name]


def test_every_message_says_what_to_do_next() -> None:
    assert [name for name, text in sections().items() if "**Next.**" not in text] == []


def test_slugs_are_words_in_lower_case() -> None:
    assert [slug for slug in slugs() if not re.fullmatch(r"[a-z]+(-[a-z]+)*", slug)] == []
