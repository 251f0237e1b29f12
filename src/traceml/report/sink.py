"""States what a face or an exporter that follows a run must offer: the Sink protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from traceml.report.contract import Report


class Sink(Protocol):
    """Takes reports, one at a time, the newest last; runs in the collector or a reader, never in the training."""

    def emit(self, report: Report) -> None:
        """Hands on a report. Called at most once an interval, and once more with the final one."""

    def close(self) -> None:
        """Ends the sink; nothing is emitted afterwards."""
