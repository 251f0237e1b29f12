"""Decides whose a fetch was: the training loop's, or an evaluation's; late, when the forwards around it are known.

A fetch is training's when its iterator has a grad-mode forward of a traced model between two of its fetches (one
that finds it exhausted counts), or, with a single fetch so far or from a loader that has fed training before, directly
after it; a loader that is begun anew for a single batch in each step counts like one iterator. One that is followed by
a no-grad forward before any grad-mode one is `eval`; but what a step was given before it began is not, for a teacher's
forward inside.
All others are `eval` too, but only known to be so when the next step has ended.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Any, Optional, Sequence

from traceml.analysis.waited import PeriodFetches, Waited
from traceml.schema.known import plus
from traceml.schema.records import LoaderInfo
from traceml.wire.edges import SERIAL_BITS

_NUM_TYPICAL = 32
_MAX_ITERATORS = 1024
_NUM_RECENT = 16  # other iterators that are, where steps are inferred
_NUM_KNOWN = 64  # iterators that are remembered over a restart; an older one does not come back


@dataclass
class _Iterator:
    num_fetches: int = 0
    forward_at_fetch: int = 0
    is_training: bool = False
    period: int = 0  # of its newest fetch


class Fetches:
    """Follows the fetches of all iterators of one rank, over all its periods."""

    def __init__(self) -> None:
        self.period = PeriodFetches()
        self.serial = 0
        self.training_serial: Optional[int] = None
        self.loaders: dict[int, LoaderInfo] = {}
        self.iterators: dict[int, _Iterator] = {}
        self._num_forwards = 0
        self._starting: dict[int, int] = {}  # time in __iter__ that waits for its first fetch
        self._open: set[int] = set()  # iterators fetched from since the last forward
        self._last: Optional[int] = None  # the newest of them
        self._given: set[int] = set()  # those of them that were fetched before the open step began
        self._may_be_eval = False  # a no-grad forward inside the step came since
        self._num_periods = 0
        self._periods: deque[PeriodFetches] = deque([self.period])
        self._typical_ns: deque[int] = deque(maxlen=_NUM_TYPICAL)
        self._known: tuple[int, ...] = ()  # the newest iterators that are training's
        self._training_loaders: set[int] = set()  # whose iterators they are
        self._assumed = 0  # samples of the newest batch, by what its loader's others held

    def resume(self, serial: int, num_fetches: int, training: list[int]) -> None:
        """Goes on behind a stored step: the iterator in use, how many fetches it had, and which are training's."""
        self.serial = serial
        self._known = tuple(training)
        self._training_loaders = {known >> SERIAL_BITS for known in training}
        for known in training:
            self.iterators[known] = _Iterator(is_training=True)
        self.iterators.setdefault(serial, _Iterator()).num_fetches = num_fetches
        self.training_serial = training[-1] if training else None

    def num_fetches(self, serial: int) -> int:
        """How many fetches an iterator has had."""
        iterator = self.iterators.get(serial)
        return iterator.num_fetches if iterator else 0

    @property
    def has_open(self) -> bool:
        """Whether something was fetched since the last forward."""
        return bool(self._open)

    @property
    def is_training(self) -> bool:
        """Whether the iterator in use is known to be training's."""
        iterator = self.iterators.get(self.serial)
        return iterator is not None and iterator.is_training

    @property
    def is_between(self) -> bool:
        """Whether nothing that came before decides over the fetches and forwards to come."""
        is_open = self._open or self._given or self._may_be_eval or self._starting
        return not is_open and not any(period.undecided for period in self._periods)

    @property
    def is_fed(self) -> bool:
        """Whether the iterator in use is training's, and has given a batch."""
        iterator = self.iterators.get(self.serial)
        return iterator is not None and iterator.is_training and iterator.num_fetches > 0

    def repeated(self, waits_ns: Sequence[int], *, num_forwards: int, num_forwards_before: int) -> Optional[int]:
        """A whole step of fetches and forwards went by, in a period of its own; see `is_between` and `is_fed`.

        Args:
            waits_ns: What each fetch took; a forward followed.
            num_forwards: In the step.
            num_forwards_before: Before its last fetch.

        Returns:
            The samples that the fetches brought.
        """
        num_samples = None
        if waits_ns:
            iterator = self.iterators[self.serial]
            for ns in waits_ns:
                iterator.num_fetches += 1
                num_samples = plus(num_samples, self._num_samples(iterator.num_fetches))
                self._typical_ns.append(ns)
            iterator.forward_at_fetch, iterator.period = self._num_forwards + num_forwards_before, self._num_periods
            self._last = self.training_serial = self.serial
        self._num_forwards += num_forwards
        self._num_periods += 1
        return num_samples

    def snapshot(self) -> dict[str, Any]:
        """What decides over fetches to come, for `restore`; of the newest iterators."""
        recent = islice(reversed(self.iterators.items()), _NUM_RECENT)
        states = [
            [serial, one.num_fetches, one.forward_at_fetch != self._num_forwards, one.is_training]
            for serial, one in recent
        ]
        return {"iterators": states, "open": list(self._open), "last": self._last, "training": self._known}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Goes on as a snapshot says."""
        self._num_forwards = 1
        for serial, num_fetches, had_forward, is_training in reversed(snapshot["iterators"]):
            self.iterators.pop(serial, None)
            self.iterators[serial] = _Iterator(num_fetches, 0 if had_forward else 1, is_training=is_training)
        self._open = {serial for serial in snapshot["open"] if serial in self.iterators}
        self._last = snapshot["last"]

    def known_training(self) -> list[int]:
        """The newest iterators that are known to be training's."""
        return list(self._known)

    def started(self, ns: int) -> None:
        """`iter(loader)` took `ns`; its first fetch follows."""
        self._starting[self.serial] = self._starting.get(self.serial, 0) + ns

    def step_begins(self) -> None:
        """A `trace_step` is entered: what was fetched up to here is what it was given."""
        self._given = set(self._open)

    def opening(self) -> int:
        """A fetch begins; returns 1 if no-grad forwards before it turned out to be an evaluation's, else 0."""
        if not self._may_be_eval or self._open == self._given:
            return 0  # without a fetch inside the step they were a teacher's, for the step's own batch
        self._may_be_eval = False
        self._decide_open(self._open - self._given)
        return 1

    def fetched(self, ns: int) -> None:
        """A fetch of the current iterator ended with a batch after `ns`."""
        serial = self.serial
        iterator = self.iterators.get(serial)
        if iterator is None:
            iterator = self._new_iterator(serial)
        self._look_back(serial, iterator)
        if not iterator.num_fetches and self._is_begun_each_step(serial):
            self._find_training(serial - 1, self.iterators[serial - 1])
            self._find_training(serial, iterator)
        iterator.num_fetches += 1
        iterator.forward_at_fetch, iterator.period = self._num_forwards, self._num_periods
        waited = self.period.undecided.get(serial)
        if waited is None:
            waited = self.period.undecided[serial] = Waited()
        started_ns = self._starting.pop(serial, 0) if self._starting else 0
        if iterator.num_fetches == 1 and not self._is_all_of_an_epoch(serial):
            waited.epoch_start_ns += started_ns + self._excess_ns(ns)
        else:
            self._typical_ns.append(ns)
        waited.ns += ns + started_ns
        waited.num_fetches += 1
        waited.num_samples = plus(waited.num_samples, self._num_samples(iterator.num_fetches))
        self._open.add(serial)
        self._last = serial

    def exhausted(self) -> bool:
        """A fetch of the current iterator delivered nothing; whether the iterator is training's."""
        iterator = self.iterators.get(self.serial)
        if iterator is None:
            return False
        self._look_back(self.serial, iterator)
        return iterator.is_training

    def counted(self, *, samples: Optional[int] = None, tokens: Optional[int] = None) -> None:
        """The batch just fetched was looked into: its samples and tokens."""
        if samples is not None:
            samples = self.beyond_assumed(samples)
        for waited in (self.period.undecided.get(self.serial), self.period.training.get(self.serial)):
            if waited is not None:
                waited.num_samples = plus(waited.num_samples, samples)
                waited.num_tokens = plus(waited.num_tokens, tokens)
                return

    def beyond_assumed(self, num_samples: int) -> int:
        """What a look into the newest batch adds to what was assumed of it."""
        more, self._assumed = num_samples - self._assumed, 0
        return more

    def forward(self) -> None:
        """A grad-mode forward of a traced model (or, where none is ever seen, the work of a step) begins."""
        self._num_forwards += 1
        self._may_be_eval = False
        if not self._open:
            return
        for serial in self._open:
            iterator = self.iterators[serial]
            if iterator.is_training or (serial == self._last and self._feeds_alone(serial, iterator)):
                self.training_serial = serial
                for period in self._periods:
                    if serial in period.undecided:
                        period.decide(serial, is_training=True)
        self._open.clear()
        self._given.clear()

    def evaluated(self) -> None:
        """A no-grad forward of a traced model begins outside a step."""
        if self._open:
            self._decide_open(self._open)

    def maybe_evaluated(self) -> bool:
        """A no-grad forward begins inside a step; True when it may be an evaluation's, known later."""
        if self._open:
            self._may_be_eval = True
        return self._may_be_eval

    def end_period(self) -> int:
        """The step ended; returns 1 if no-grad forwards inside it turned out to be an evaluation's, else 0."""
        self._given.clear()
        turned = self.opening() if self._may_be_eval else 0
        self.settle(self.period)
        self.split()
        return turned

    def split(self) -> None:
        """A new period begins, for the fetches that follow."""
        self.period = PeriodFetches()
        self._periods.append(self.period)
        self._num_periods += 1

    def join(self, period: PeriodFetches, later: PeriodFetches) -> None:
        """Makes a period one with the one behind it."""
        period.add(later)
        self._periods = deque(one for one in self._periods if one is not later)  # by identity: empty ones are equal
        if later is self.period:
            self.period = period

    def settle(self, ended: PeriodFetches) -> None:
        """The step with those fetches ended: of the periods before it nothing more will be known."""
        if not any(period is ended for period in self._periods):
            return  # it was let go with one before it: nothing before it is undecided
        for period in self._periods:
            if period is ended:
                break
            if period.undecided:
                self._give_up(period)
        while self._periods and not self._periods[0].undecided and self._periods[0] is not self.period:
            self._periods.popleft()

    def give_up(self) -> None:
        """The run is over: nothing more will be known."""
        for period in self._periods:
            self._give_up(period)

    def feeds_the_same(self) -> bool:
        """Whether the fetch that begins now continues a run of fetches from one iterator, without a forward between."""
        return set(self.period.undecided) == {self.serial} and self._open == {self.serial}

    def restart_period(self) -> PeriodFetches:
        """Cuts the period here, for the startup segment: returns the one so far, whose undecided fetches are eval."""
        done = self.period
        self._give_up(done)
        for serial, ns in self._starting.items():
            done.training.setdefault(serial, Waited()).ns += ns
        self._starting.clear()
        self.period = PeriodFetches()
        self._periods = deque([self.period])
        self._open.clear()
        return done

    def _look_back(self, serial: int, iterator: _Iterator) -> None:
        """An iterator with a forward since its fetch before is training's."""
        if iterator.num_fetches and iterator.forward_at_fetch != self._num_forwards and not iterator.is_training:
            self._find_training(serial, iterator)

    def _feeds_alone(self, serial: int, iterator: _Iterator) -> bool:
        """Whether what is fetched so far, one batch or a known loader's, is for the forward that begins."""
        return iterator.num_fetches == 1 or serial >> SERIAL_BITS in self._training_loaders

    def _new_iterator(self, serial: int) -> _Iterator:
        if len(self.iterators) > _MAX_ITERATORS:
            for old in list(self.iterators)[: _MAX_ITERATORS // 2]:
                if not any(old in period.undecided for period in self._periods) and old not in self._open:
                    del self.iterators[old]
        made = self.iterators[serial] = _Iterator()
        return made

    def _give_up(self, period: PeriodFetches) -> None:
        """What could not be decided goes with what is known of its iterator: eval, unless that is training's."""
        for serial in list(period.undecided):
            period.decide(serial, is_training=self.iterators[serial].is_training)

    def _decide_open(self, evaluated: set[int]) -> None:
        for serial in evaluated:
            for period in self._periods:
                period.decide(serial, is_training=False)
        self._open = self._open - evaluated

    def _find_training(self, serial: int, iterator: _Iterator) -> None:
        """From now on it is known that an iterator is training's."""
        if not iterator.is_training:
            iterator.is_training = True
            self._known = (*self._known, serial)[-_NUM_KNOWN:]
            self._training_loaders.add(serial >> SERIAL_BITS)
        for period in self._periods:
            period.decide(serial, is_training=True)

    def _is_begun_each_step(self, serial: int) -> bool:
        """Whether the loader's iterator before gave a single batch, in this step or the one before, and it was used."""
        before = self.iterators.get(serial - 1)
        if before is None or before.num_fetches != 1 or before.forward_at_fetch == self._num_forwards:
            return False
        return self._num_periods - before.period <= 1

    def _is_all_of_an_epoch(self, serial: int) -> bool:
        """Whether each epoch has this one batch, and no workers start for it: waiting for it is ordinary input."""
        info, before = self.loaders.get(serial >> SERIAL_BITS), self.iterators.get(serial - 1)
        if info is not None and info.num_workers and not info.persistent_workers:
            return False  # the advice is to let them live
        if info is not None and info.num_samples is not None and info.batch_size:
            return info.num_samples <= info.batch_size
        return before is not None and before.num_fetches == 1

    def _excess_ns(self, ns: int) -> int:
        """What the first fetch of an iterator took beyond a usual one; all of it when workers were started for it."""
        if self._typical_ns:
            return max(0, ns - sorted(self._typical_ns)[len(self._typical_ns) // 2])
        info = self.loaders.get(self.serial >> SERIAL_BITS)
        return ns if info is not None and info.num_workers else 0

    def _num_samples(self, num_fetches: int) -> Optional[int]:
        info = self.loaders.get(self.serial >> SERIAL_BITS)
        self._assumed = 0
        if info is None:
            return None
        if info.batch_size is None:
            self._assumed = info.usual_samples or 0
            return info.usual_samples
        if info.num_samples is None or info.drop_last:
            return info.batch_size
        return max(0, min(info.batch_size, info.num_samples - (num_fetches - 1) * info.batch_size)) or info.batch_size
