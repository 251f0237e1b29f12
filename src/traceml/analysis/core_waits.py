"""Tells which share of the time a rank's main thread was ready to run and waited for a core."""

from __future__ import annotations

from typing import Final, Optional, Sequence

from traceml.schema.records import ProcessSample

_PAIR: Final = 2  # of samples: a counter says something from one to another


def core_wait_share(
    samples: Sequence[ProcessSample], *, steady_ns: Optional[tuple[int, int]], start: ProcessSample
) -> Optional[float]:
    """The share (0..1) of the wall time; None where it is not known.

    Of the samples within the steady steps, where there are two of them, else of all. A single sample counts from the
    run's start: a training may be shorter than the way from one sample to the next.

    Args:
        samples: One rank's, in time order.
        steady_ns: From when to when the steady steps lasted; None without any.
        start: When the process began, or the run in it, and what had been waited by then.
    """
    known = [sample for sample in samples if sample.run_delay_ns is not None]
    first_ns, last_ns = steady_ns or (0, -1)
    steady = [sample for sample in known if first_ns <= sample.at_ns <= last_ns]
    chosen = steady if len(steady) >= _PAIR else known
    if len(chosen) == 1:
        chosen = [start, *chosen]
    return _share(chosen)


def _share(samples: Sequence[ProcessSample]) -> Optional[float]:
    waited_ns, passed_ns = 0, 0
    for before, after in zip(samples, samples[1:]):
        more_ns = (after.run_delay_ns or 0) - (before.run_delay_ns or 0)
        if more_ns >= 0 and after.at_ns > before.at_ns:  # a counter that falls is another process's
            waited_ns, passed_ns = waited_ns + more_ns, passed_ns + after.at_ns - before.at_ns
    return min(1.0, waited_ns / passed_ns) if passed_ns else None
