"""Chooses the one next step for a loader that is waited for, by its own settings and the cores there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from traceml.schema import units
from traceml.schema.phases import INPUT

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds
    from traceml.schema.records import LoaderInfo

_CHEAPER: Final = "make a batch cheaper to load (smaller or decoded files, less work per item)"
_ONLY_IF_IT_WAITS: Final = "more help only if they wait (disk, network) rather than compute"
_TOO_SMALL: Final = (
    "make batches larger, or index tensors in memory instead of loading single items: a batch takes {took}, "
    "less than handing it over from a worker costs"
)
_NO_CORE: Final = (
    "free cores first: the training waited for one {share} of the time, and so may its {workers}; num_workers=0 where "
    "a batch takes less than a millisecond"
)
_HALF: Final = 0.5


def loader_advice(facts: Facts, rank: RankFacts, limits: Thresholds) -> str:
    """The next action for a run that waits for data; the rank has steady steps of more than 0 ns, and input."""
    loader = facts.loader
    if loader is None or loader.num_workers is None:
        return "make the next batch in the background while the step runs (this loader's settings are not known)"
    if rank.epoch_start.total >= _HALF * (rank.phase_ns(INPUT) or 0) > 0:
        return epoch_advice(loader, rank)
    waited = rank.core_wait_share or 0.0
    if loader.num_workers and waited >= limits.core_wait_share:
        return _NO_CORE.format(workers=_workers(loader.num_workers), share=units.percent(waited))
    advice = _more_workers(facts, rank, loader.num_workers, limits)
    if loader.is_iterable and advice.startswith("num_workers"):
        advice += "; shard the IterableDataset by worker (get_worker_info), or each one repeats all of it"
    if loader.has_own_sampler and advice.startswith("num_workers"):
        advice = f"look at the script's own sampler, which workers do not run; where the items are slow, {advice}"
    on_device = not rank.state.identity.device.startswith("cpu")
    return f"{advice}, pin_memory=True" if on_device and loader.pin_memory is False else advice


def loader_in_words(loader: LoaderInfo | None) -> str:
    """A loader's settings as far as they are known: `the loader has num_workers=0, batch 64`."""
    if loader is None:
        return "the loader's settings are not known"
    known = []
    if loader.num_workers is not None:
        known.append(f"num_workers={loader.num_workers}")
    if loader.batch_size is not None:
        known.append(f"batch {units.count(loader.batch_size)}")
    return f"the loader has {', '.join(known)}" if known else "the loader's settings are not known"


def epoch_advice(loader: LoaderInfo | None, rank: RankFacts) -> str:
    """The next action for a run that pays for the start of each epoch."""
    each = f"the start of an epoch takes {units.duration(rank.wall.epoch_start.mean or 0.0)}"
    if loader is not None and loader.num_workers and not loader.persistent_workers:
        return f"persistent_workers=True: {each}, as its workers start anew"
    return f"make the first batch of an epoch cheaper, or the epochs longer: {each}"


def _more_workers(facts: Facts, rank: RankFacts, num_workers: int, limits: Thresholds) -> str:
    # Without workers the host's wait is the time to make a batch, also where the device still works meanwhile.
    making_ns = rank.wall.mean_ns(INPUT) or 0.0
    period_ns = rank.total_ns / rank.num_steady
    num_batches = max(rank.num_micro_batches, rank.wall.num_steady) / rank.wall.num_steady
    if not num_workers and making_ns / num_batches < limits.worth_a_worker_ns:
        return _TOO_SMALL.format(took=units.duration(making_ns / num_batches))
    rest_ns = max(period_ns - (rank.mean_ns(INPUT) or 0.0), period_ns / 1e3)
    if num_workers:
        needed = math.ceil(num_workers * period_ns / rest_ns)
        every, rest = units.duration(period_ns / num_batches), units.duration(rest_ns / num_batches)
        delivers = "one delivers" if num_workers == 1 else f"{num_workers} deliver"
        reason = f"{delivers} a batch every {every}, the rest of the work on one takes {rest}"
    else:
        needed = math.ceil(making_ns / rest_ns) + 1
        reason = f"one worker makes a batch in {units.duration(making_ns / num_batches)}"
    return _within_cores(facts, num_workers, needed, reason, limits)


def _within_cores(facts: Facts, num_workers: int, needed: int, reason: str, limits: Thresholds) -> str:
    cores = facts.system.num_cores
    num_cores = limits.max_workers_advised if cores is None else max(1, int(cores))
    possible = min(needed, num_cores, limits.max_workers_advised)
    if possible <= num_workers:
        allowed = "" if cores is None or num_workers < num_cores else f" on {_cores(num_cores)}"
        waits = f"; {_ONLY_IF_IT_WAITS}" if allowed else ""
        are = "is" if num_workers == 1 else "are"
        return f"{_CHEAPER}: there {are} {_workers(num_workers)}{allowed} already{waits}"
    if possible == needed:
        return f"num_workers={needed} ({reason})"
    limit = (
        f"but {_cores(num_cores)} allowed" if possible == num_cores and cores is not None else "but more seldom help"
    )
    return f"num_workers={possible} ({reason}; about {needed} would keep up, {limit})"


def _workers(number: int) -> str:
    return "1 worker" if number == 1 else f"{number} workers"


def _cores(number: int) -> str:
    return "1 core" if number == 1 else f"{number} cores"
