"""Writes a comparison as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Iterator

from traceml.views.text.columns import clean
from traceml.views.text.comparison import facts, headline, table, whose

if TYPE_CHECKING:
    from traceml.report.compare.contract import Comparison

#: What Markdown, or the HTML and the names of people and issues in it, would read as its own.
_SPECIAL: Final = re.compile(r"[\\`*_\[\]<>|~@&#]")


def comparison_markdown(found: Comparison) -> str:
    """The comparison as Markdown: the sentence, where the time moved, a table of the phases, the rest as a list.

    Names come from summaries that anybody may have made: nothing in them is read as Markdown or HTML.
    """
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Comparison) -> Iterator[str]:
    word, _, sentence = headline(found).partition(": ")
    yield f"**TraceML compare: {escape(word)}**: {escape(sentence)}"
    yield ""
    verdict = found.verdict
    for label, text in (("where", verdict.where), ("next", verdict.next), ("basis", verdict.basis)):
        if text:
            yield f"- {label}: {escape(clean(text))}"
    cells = table(found)
    if cells:
        yield ""
        yield f"| {whose(found)} | before | after | change | 95 % interval |"
        yield "|---|---:|---:|---:|:---|"
        for row in cells:
            interval = f"{escape(row.interval)}{', within chance' if row.is_chance else ''}"
            yield f"| {escape(row.label)} | {row.before} | {row.after} | {row.change} | {interval} |"
    yield ""
    yield from (f"- {label}: {escape(text)}" for label, text in facts(found))


def escape(text: str) -> str:
    """Text that Markdown shows as it is: every sign of its own as an HTML entity."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found.group())};", text)
