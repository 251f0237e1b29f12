"""Puts the edges of garbage collections where they belong in time."""

from __future__ import annotations

from traceml.wire import edges
from traceml.wire.ring import EdgeBatch


def in_order(batch: EdgeBatch) -> tuple[list[float], bytes]:
    """The batch with a collection's edges put before the edge they interrupted, whose stamp is younger than theirs."""
    stamps, codes = batch.stamps.tolist(), batch.codes
    at = codes.find(edges.GC)
    if at < 0:
        return stamps, codes
    order = bytearray(codes)
    while at >= 0:
        before = at - 1
        if before >= 0 and order[before] < edges.FIRST_VALUE and stamps[at] < stamps[before]:
            end = at
            while end < len(order) and order[end] < edges.FIRST_VALUE and stamps[end] <= stamps[before]:
                end += 1
            stamps[before:end] = [*stamps[at:end], stamps[before]]
            order[before:end] = bytes([*order[at:end], order[before]])
        at = order.find(edges.GC, at + 1)
    return stamps, bytes(order)
