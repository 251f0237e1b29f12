"""Writes a comparison as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Iterator, Sequence

from traceml.views.text.columns import clean, fit
from traceml.views.text.comparison import facts, headline, table, whose

if TYPE_CHECKING:
    from traceml.report.compare.contract import Comparison, RunBrief

#: What Markdown, or the HTML and the names of people and issues in it, would read as its own.
_SPECIAL: Final = re.compile(r"[\\`*_\[\]<>|~@&#]|(?<=\w):(?=//)|(?<=www)\.", re.IGNORECASE)
#: Commands of our own, which hold no name: the only code there is.
_CODE: Final = re.compile(r"`(traceml compare A1 \.\.\. A\d+ --against B1 \.\.\. B\d+|--help|--margin)`")
_MAX_RUNS: Final = 10
_MAX_NAME: Final = 60


def comparison_markdown(found: Comparison) -> str:
    """The comparison as Markdown: the sentence, where the time moved, a table of the phases, the rest as a list.

    Names come from summaries that anybody may have made: nothing in them is read as Markdown or HTML.
    """
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Comparison) -> Iterator[str]:
    word, _, sentence = headline(found).partition(": ")
    yield f"**TraceML compare: {escape(word)}**: {escape(sentence)}"
    yield ""
    yield f"- runs: {_names(found.before)} → {_names(found.after)}"
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


def _names(runs: Sequence[RunBrief]) -> str:
    names = [escape(fit(clean(run.name), _MAX_NAME)) for run in runs[:_MAX_RUNS]]
    return ", ".join(names) + (f" and {len(runs) - _MAX_RUNS} more" if len(runs) > _MAX_RUNS else "")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, and our own commands as code: no sign is Markdown's, no address a link."""
    parts = _CODE.split(text)  # every second one is code
    return "".join(f"`{part}`" if at % 2 else _escaped(part) for at, part in enumerate(parts))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"&#{ord(found.group())};", text)
