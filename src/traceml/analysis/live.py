"""Follows the edges of the unfinished step: which phase is open now, since when."""

from __future__ import annotations

from typing import Final, NamedTuple

from traceml.analysis.division import BACKWARD, BETWEEN, FETCH, FORWARD, IN_STEP, OPTIMIZER, SLOT_OF, SYNC
from traceml.wire import edges
from traceml.wire.ring import EdgeBatch

_NEEDING: Final = frozenset({FORWARD, BACKWARD, OPTIMIZER})  # the phases that exchange parameters and gradients


class Opened(NamedTuple):
    """What is open behind some edges, since when, and how many steps ended among them."""

    slot: int
    since_ns: int
    num_ended: int
    by_script: bool  # a wait for other ranks that nothing of the step is in need of: a barrier


def open_at_end(tail: EdgeBatch, *, stack: list[int], since_ns: int) -> Opened:
    """What is open behind the tail.

    Args:
        tail: The edges that no step has ended with yet, by what is published.
        stack: The slots that are open before it; it is used up.
        since_ns: When the innermost one was opened.
    """
    num_ended = 0
    for stamp, code in zip(tail.stamps, tail.codes):
        if code >= edges.FIRST_VALUE:
            continue
        since_ns = max(since_ns, int(stamp * 1e9))
        if code < edges.CLOSE:
            stack.append(SLOT_OF[code])
        elif code < edges.CLOSE_NO_BATCH and len(stack) > 1:
            stack.pop()
        elif code == edges.CLOSE_NO_BATCH and FETCH in stack[1:]:
            while stack.pop() != FETCH:
                pass
        elif code == edges.UNWOUND:
            del stack[1:]
        elif code in (edges.STEP_BEGIN, edges.STEP_END, edges.STEP_FAILED):
            stack = [IN_STEP if code == edges.STEP_BEGIN else BETWEEN]
            num_ended += code != edges.STEP_BEGIN
    by_script = stack[-1] == SYNC and _NEEDING.isdisjoint(stack)
    return Opened(stack[-1], since_ns, num_ended, by_script)
