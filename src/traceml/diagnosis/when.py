"""Says in which steps a cost lies that is not spread over the run: "92 % of it in steps 61 to 100"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Optional, Sequence

from traceml.diagnosis.ground import judged_rank
from traceml.schema import units

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, LedgerFacts
    from traceml.diagnosis.finding import Finding
    from traceml.diagnosis.thresholds import Thresholds
    from traceml.schema.syncs import UnitSums


_OF_LEDGER: Final = ("STRAGGLER", "ROTATING_STRAGGLER", "COMM_BOUND")


class Piece(NamedTuple):
    """Consecutive steps and what they cost, in ns."""

    first_step: int
    last_step: int
    num_steps: int
    cost_ns: float


def with_steps(finding: Finding, facts: Facts, limits: Thresholds) -> Finding:
    """The finding, with the steps that hold nearly all of its cost, where those are a part of the run."""
    found = densest(_pieces(finding, facts, limits), limits)
    if found is None:
        return finding
    share, first, last = found
    where = f"{units.percent(share)} of it in steps {units.count(first)} to {units.count(last)}"
    return replace(finding, why=f"{finding.why}; {where}")


def share_of_steps(finding: Finding, facts: Facts, limits: Thresholds) -> float:
    """The share (0..1) of the steps in which nearly all of the cost lies; 1 where it has no place of its own."""
    pieces = _pieces(finding, facts, limits)
    found = densest(pieces, limits)
    if found is None:
        return 1.0
    _, first, last = found
    held = [piece for piece in pieces if first <= piece.first_step and piece.last_step <= last]
    return _num_steps(held) / _num_steps(pieces)


def densest(pieces: Sequence[Piece], limits: Thresholds) -> Optional[tuple[float, int, int]]:
    """The fewest steps in a row that hold nearly all of the cost, and their neighbours that cost at least half as much.

    Returns:
        The share of the cost, first and last step. None where they are more than half of the steps, or so few that they
        are an event.
    """
    window = _fewest(pieces, limits.spell_share * sum(piece.cost_ns for piece in pieces))
    if window is None:
        return None
    begin, end = window
    least_ns = limits.each_step_share * _cost_ns(pieces[begin : end + 1]) / _num_steps(pieces[begin : end + 1])
    while begin and pieces[begin - 1].cost_ns >= least_ns * pieces[begin - 1].num_steps:
        begin -= 1
    while end + 1 < len(pieces) and pieces[end + 1].cost_ns >= least_ns * pieces[end + 1].num_steps:
        end += 1
    held = pieces[begin : end + 1]
    if not limits.min_steady_steps <= _num_steps(held) <= limits.most_of_steps * _num_steps(pieces):
        return None
    return min(1.0, _cost_ns(held) / _cost_ns(pieces)), held[0].first_step, held[-1].last_step


def _fewest(pieces: Sequence[Piece], enough_ns: float) -> Optional[tuple[int, int]]:
    """First and last place of the fewest steps in a row that cost so much; None where nothing costs anything."""
    best: Optional[tuple[int, int]] = None
    fewest = _num_steps(pieces) + 1
    begin, held_ns, num_steps = 0, 0.0, 0
    for end, piece in enumerate(pieces):
        held_ns += piece.cost_ns
        num_steps += piece.num_steps
        while begin < end and held_ns - pieces[begin].cost_ns >= enough_ns:
            held_ns -= pieces[begin].cost_ns
            num_steps -= pieces[begin].num_steps
            begin += 1
        if held_ns >= enough_ns > 0 and num_steps < fewest:
            best, fewest = (begin, end), num_steps
    return best


def _cost_ns(pieces: Sequence[Piece]) -> float:
    return sum(piece.cost_ns for piece in pieces)


def _num_steps(pieces: Sequence[Piece]) -> int:
    return sum(piece.num_steps for piece in pieces)


def _pieces(finding: Finding, facts: Facts, limits: Thresholds) -> list[Piece]:
    if not finding.phases or finding.impact is None:
        return []
    rank = judged_rank(facts, limits)
    if rank is None:
        return []
    is_own = finding.diagnosis not in _OF_LEDGER and finding.ranks in ((), (rank.state.identity.rank,))
    if not is_own:
        return [] if facts.ledger is None else _of_ledger(finding, facts.ledger)
    chunks, phase = rank.chunks, finding.phases[0]
    return [
        Piece(c.first_step, c.last_step, c.num_steps, c.phase_mean_ns.get(phase, 0.0) * c.num_steps) for c in chunks
    ]


def _of_ledger(finding: Finding, ledger: LedgerFacts) -> list[Piece]:
    def cost_ns(chunk: UnitSums) -> int:
        if finding.diagnosis == "COMM_BOUND":
            return chunk.transfer.total
        if finding.diagnosis == "ROTATING_STRAGGLER":
            return chunk.lost.total
        return sum(sums.gain.total for rank, sums in zip(chunk.ranks, chunk.by_rank) if rank in finding.ranks)

    chunks = ledger.chunks
    return [Piece(chunk.first_step, chunk.last_step, chunk.num_steps, float(cost_ns(chunk))) for chunk in chunks]
