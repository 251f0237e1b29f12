"""States what the ranks' ledger knows of the steady steps."""

from __future__ import annotations

from typing import Final, Iterator, Optional, Sequence

from traceml.analysis.facts import LedgerFacts
from traceml.schema.syncs import LedgerState, UnitSums, merged

MAX_CHUNKS: Final = 256


def ledger_facts(units: Sequence[UnitSums], state: Optional[LedgerState], *, steady_from: int) -> Optional[LedgerFacts]:
    """The ledger over the steady units; None where nobody has aligned ranks.

    Args:
        units: In order; one by one where warm-up may be.
        state: The ledger's own.
        steady_from: The first step that is no rank's warm-up; units that end before it are left out.
    """
    if state is None:
        return None
    chunks = tuple(_chunks([unit for unit in units if unit.last_step >= steady_from]))
    return LedgerFacts(
        whole=merged(chunks),
        chunks=chunks,
        num_synced=state.num_synced,
        num_unaligned=state.num_unaligned,
        unaligned=state.unaligned,
        num_without_partner=state.num_without_partner,
    )


def _chunks(units: Sequence[UnitSums]) -> Iterator[UnitSums]:
    """At most 256 groups of about the same number of units."""
    num_units = sum(unit.num_units for unit in units)
    group: list[UnitSums] = []
    passed = number = 0
    for unit in units:
        here = passed * MAX_CHUNKS // max(num_units, MAX_CHUNKS)
        if group and here != number:
            yield _one(group)
            group = []
        number = here
        group.append(unit)
        passed += unit.num_units
    if group:
        yield _one(group)


def _one(group: Sequence[UnitSums]) -> UnitSums:
    whole = merged(group)
    assert whole is not None
    return whole
