"""Draws the inline panel: a run on 4, 8, 11 or any number of rows, the sentence first, and what has room below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator, Mapping, NamedTuple, Optional

from traceml.views.terminal import pieces, rows, state
from traceml.views.terminal.pace import Moment
from traceml.views.terminal.palette import Palette
from traceml.views.terminal.pieces import Canvas, metrics_of
from traceml.views.terminal.rule import rule
from traceml.views.text.columns import to_ascii

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.report.series import Series
    from traceml.schema.panel import PanelRequest
    from traceml.views.terminal.rows import Row

__all__ = ["Moment", "metrics_of", "panel", "panel_rows"]

_SMALL: Final = 5  # below this many rows bar and legend share one
_LARGE: Final = 10  # from this many on what is now has a row a thing
_SENTENCE: Final = 0  # ranks of pieces
_TROUBLE: Final = 1
_MORE: Final = 2
_PRICE: Final = 5


class _Piece(NamedTuple):
    """Rows that stand or fall together; of the greatest rank are those that go first where there is no room."""

    rank: int
    rows: list[Row]
    is_fresh: bool = False  # stays as it is when all else is dimmed
    instead: tuple[Row, ...] = ()  # what is more important, and takes fewer rows
    rank_instead: int = 0


def panel(
    request: PanelRequest,
    report: Report,
    series: Mapping[str, Series],
    moment: Moment = Moment(),  # noqa: B008  # frozen
) -> list[str]:
    """The panel as a terminal takes it: exactly `request.rows` rows, at most `request.columns` - 1 cells each.

    Args:
        request: The room, and what the terminal can show.
        report: The run, brought to this moment.
        series: Those of `metrics_of(report)` that there are, over the last steps.
        moment: Pace and quiet.

    Returns:
        Rows that hold no sequence but SGR, each reset at its end.
    """
    canvas = Canvas(request.columns - 1, request.ascii)
    palette = Palette(request.colours, request.background)
    drawn = panel_rows(report, series, moment, canvas=canvas, num_rows=request.rows)
    if request.ascii:
        drawn = [rows.mapped(row, to_ascii) for row in drawn]
    return [rows.to_sgr(rows.cut(row, canvas.columns), palette) for row in drawn]


def panel_rows(
    report: Report, series: Mapping[str, Series], moment: Moment, *, canvas: Canvas, num_rows: int
) -> list[Row]:
    """The panel as rows of styled text, `num_rows` of them."""
    found = _fitted(list(_pieces(report, series, canvas, num_rows)), num_rows, pieces.with_price(report, canvas))
    is_held, is_stale = bool(state.age_in_words(report, moment)), state.is_stale(report)
    drawn = [rule(report, moment, canvas.columns)]
    for piece in found:
        is_dim = is_stale or (is_held and not piece.is_fresh)
        drawn += [rows.dimmed(row) if is_dim else row for row in piece.rows]
    return (drawn + [[]] * num_rows)[:num_rows]


def _fitted(found: list[_Piece], num_rows: int, in_one: Optional[Row]) -> list[_Piece]:
    """The pieces that have room below the rule. Before one has to go, sentence and price share a row if they can."""
    found = [piece for piece in found if piece.rows]
    if in_one and num_rows >= _SMALL and _size(found) >= num_rows:
        found = [_Piece(_SENTENCE, [in_one]), *(p for p in found if p.rank not in (_SENTENCE, _MORE, _PRICE))]
    while _size(found) >= num_rows and len(found) > 1:
        least = max(range(len(found)), key=lambda at: found[at].rank)
        piece = found[least]
        found[least : least + 1] = [_Piece(piece.rank_instead, list(piece.instead))] if piece.instead else []
    return found


def _size(found: list[_Piece]) -> int:
    return sum(len(piece.rows) for piece in found)


def _pieces(report: Report, series: Mapping[str, Series], canvas: Canvas, num_rows: int) -> Iterator[_Piece]:
    if num_rows < _SMALL:
        yield from _small(report, canvas)
        return
    yield _shrinking(
        pieces.verdict(report, canvas, most_rows=2), pieces.verdict(report, canvas, most_rows=1), _MORE, _SENTENCE
    )
    yield _Piece(_TROUBLE, pieces.trouble(report, canvas, most_rows=2), is_fresh=True)
    yield _Piece(_PRICE, pieces.priced(report, canvas))
    short = pieces.next_step(report, canvas, most_rows=1)
    yield _shrinking(pieces.next_step(report, canvas, most_rows=2) if num_rows >= _LARGE else short, short, 12, 4)
    yield _Piece(3, pieces.period(report, canvas))
    drawn = {} if state.awaited_in_words(report) else dict(pieces.curves(report, series, canvas))
    yield _Piece(7, [drawn[name] for name in ("step",) if name in drawn])
    yield _Piece(9, [drawn[name] for name in ("phase",) if name in drawn])
    if num_rows < _LARGE:
        has_ranks = report.run.world_size > 1
        yield _Piece(6 if has_ranks else 8, pieces.now(report, canvas), is_fresh=True)
        return
    yield _Piece(10, [drawn["memory"]] if "memory" in drawn else pieces.memory(report, canvas))
    yield _Piece(6, pieces.doing(report, canvas), is_fresh=True)
    yield _Piece(8, pieces.ranks(report, canvas))
    yield _Piece(11, pieces.host(report, canvas), is_fresh=True)
    yield _Piece(11, pieces.events(report, canvas))


def _shrinking(rows_wanted: list[Row], fewer: list[Row], rank: int, rank_instead: int) -> _Piece:
    """A piece that can do with fewer rows, its text then shortened."""
    if len(fewer) == len(rows_wanted):
        return _Piece(rank_instead, fewer)
    return _Piece(rank, rows_wanted, instead=tuple(fewer), rank_instead=rank_instead)


def _small(report: Report, canvas: Canvas) -> Iterator[_Piece]:
    """Verdict, price, bar; trouble takes the price's place, and a sentence without a price may have its row."""
    told = pieces.trouble(report, canvas)
    price = [] if told else pieces.price_and_next(report, canvas)
    has_price = bool(told) or (bool(price) and report.verdict.impact is not None)
    first, *others = pieces.verdict(report, canvas, most_rows=1 if has_price else 2)
    yield _Piece(_SENTENCE, [first])
    yield _Piece(_MORE, others)
    yield _Piece(_TROUBLE, told, is_fresh=True)
    yield _Piece(4 if others else 2, price)
    yield _Piece(3, pieces.period_in_one(report, canvas))
    yield _Piece(6, pieces.now(report, canvas), is_fresh=True)
