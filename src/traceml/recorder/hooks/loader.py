"""Sees what the training thread waits for a DataLoader: `__iter__`, and each `__next__` of its iterator."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Callable, Final, Optional

from traceml.recorder.hooks import counting
from traceml.recorder.interrupts import let_pass
from traceml.recorder.pen import Pen
from traceml.schema.records import LoaderInfo
from traceml.wire import edges

HOOK: Final = "input"
_OPEN: Final = edges.INPUT
_CLOSE: Final = edges.INPUT + edges.CLOSE
_NO_BATCH: Final = edges.CLOSE_NO_BATCH
_SAMPLES: Final = edges.SAMPLES
_MAX_ITERATORS: Final = 1024
_MAX_LOADERS: Final = 200
NUM_ALIKE: Final = 64  # batches in a row, until each is no longer looked into
_NEVER: Final = -(1 << 62)
_NUM_LOOKS: Final = 3  # batches of a loader that are looked into before it is known whether that is needed


class Loaders:
    """Knows the loaders and iterators by number, and how their batches are counted."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._numbers: dict[int, int] = {}  # id of a loader -> its number
        self._infos: dict[int, LoaderInfo] = {}
        self._serials: dict[int, int] = {}  # id of an iterator -> its serial
        self._epochs: dict[int, int] = {}
        self._looks: dict[int, Optional[Callable[[Any], None]]] = {}
        self._num_looks: dict[int, int] = {}
        self._number_in_use = 0  # of the loader whose batches are fetched
        self._is_blind = False
        pen.late_looks.append(self.look_again)

    def start(self, loader: Any, settings_of: Optional[Callable[[Any], LoaderInfo]] = None) -> int:
        """The serial of a new iterator of `loader`, announced in the ring; the loader's settings when they are new."""
        serial = self._next_serial(self._number(loader, settings_of or _settings_of))
        self._pen.value(edges.SERIAL, serial)
        self._pen.iterator = 0
        return serial

    def started(self, iterator: Any, serial: int) -> None:
        """`iterator` has that serial from now on."""
        if len(self._serials) >= _MAX_ITERATORS:
            self._serials.clear()
        self._serials[id(iterator)] = serial

    def switch(self, iterator: Any, settings_of: Optional[Callable[[Any], LoaderInfo]] = None) -> None:
        """The fetches that follow are another iterator's than the ones before."""
        serial = self._serials.get(id(iterator))
        if serial is None:  # made before we were there, or not by DataLoader.__iter__
            serial = self._next_serial(self._number(iterator, settings_of or _settings_of_iterator))
            self.started(iterator, serial)
        self._pen.value(edges.SERIAL, serial)
        self._pen.iterator = id(iterator)
        self._number_in_use = serial >> edges.SERIAL_BITS
        self._pen.look = self._looks.get(self._number_in_use)

    def stop_looking(self) -> None:
        """No batch is looked into any more: samples and tokens are counted only by what a loader says."""
        self._is_blind = True
        for number, info in self._infos.items():
            if info.usual_samples is not None:
                self._tell_usual(number, None)
        self._looks = dict.fromkeys(self._looks)
        self._pen.look = None

    def look(self, batch: Any) -> None:
        """Counts what is in a batch, where its loader does not say."""
        try:
            if self._pen.look is not None:
                self._pen.look(batch)
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(HOOK, error)

    def _next_serial(self, number: int) -> int:
        epoch = self._epochs[number] = self._epochs.get(number, 0) + 1
        return number << edges.SERIAL_BITS | epoch

    def _number(self, owner: Any, settings_of: Callable[[Any], LoaderInfo]) -> int:
        number = self._numbers.get(id(owner))
        found = settings_of(owner)
        if number is not None and replace(self._infos[number], number=0, usual_samples=None) == found:
            return number
        number = len(self._infos) + 1
        if number > _MAX_LOADERS:
            return _MAX_LOADERS  # thousands of loaders: their settings are not told apart any more
        self._numbers[id(owner)] = number
        info = self._infos[number] = replace(found, number=number)
        self._looks[number] = None if self._is_blind else lambda batch: self._look_first(number, batch)
        self._pen.ring.send(info)
        return number

    def _look_first(self, number: int, batch: Any) -> None:
        """Decides from a loader's first batches whether each has to be looked into."""
        looks = self._num_looks[number] = self._num_looks.get(number, 0) + 1
        if counting.num_tokens(batch) is not None:
            self._looks[number] = self._look_tokens
        elif self._infos[number].batch_size is None:
            self._looks[number] = self._look_samples(number) if looks >= _NUM_LOOKS else self._looks[number]
        elif looks >= _NUM_LOOKS:
            self._looks[number] = None
        self._pen.look = self._looks[number]
        self._count(batch, samples=self._infos[number].batch_size is None)

    def _look_tokens(self, batch: Any) -> None:
        self._count(batch, samples=self._infos_of_current_have_no_size())

    def _look_samples(self, number: int) -> Callable[[Any], None]:
        """Counts the samples of each batch; once many were alike, of one now and then: looking is a tenth of our cost.

        Where such a look finds another number, each is looked into from then on.
        """
        pen = self._pen
        newest: Optional[int] = None
        num_alike, usual = 0, None

        def look(batch: Any) -> None:
            nonlocal newest, num_alike, usual
            num_samples = counting.num_samples(batch)
            if num_samples is not None:
                pen.value(_SAMPLES, num_samples)
            if num_samples != newest:
                newest, num_alike = num_samples, 0 if usual is None else _NEVER
            num_alike += num_samples is not None
            if num_alike >= NUM_ALIKE:
                if usual is None:
                    usual = num_samples
                    self._tell_usual(number, usual)
                pen.look = None

        return look

    def _tell_usual(self, number: int, num_samples: Optional[int]) -> None:
        """Whoever reads knows from now on what a batch holds that is not looked into."""
        info = self._infos[number] = replace(self._infos[number], usual_samples=num_samples)
        self._pen.ring.send(info)

    def look_again(self) -> None:
        """Keeping house: the next batch is looked into, be its loader's others alike or not."""
        if self._pen.look is None:
            self._pen.look = self._looks.get(self._number_in_use)

    def _infos_of_current_have_no_size(self) -> bool:
        serial = self._serials.get(self._pen.iterator, 0)
        info = self._infos.get(serial >> edges.SERIAL_BITS)
        return info is None or info.batch_size is None

    def _count(self, batch: Any, *, samples: bool) -> None:
        num_samples = counting.num_samples(batch) if samples else None
        if num_samples is not None:
            self._pen.value(edges.SAMPLES, num_samples)
        num_tokens = counting.num_tokens(batch)
        if num_tokens is not None:
            self._pen.value(edges.TOKENS, num_tokens)


def loaders_of(pen: Pen) -> Loaders:
    """The session's own; the hook and every `wrap_dataloader` number theirs in it."""
    found: Optional[Loaders] = pen.loaders
    if found is None:
        found = pen.loaders = Loaders(pen)
    return found


def install(pen: Pen) -> str:
    """Wraps `DataLoader.__iter__` and its iterators' `__next__`; returns why they cannot be, or nothing."""
    torch = sys.modules["torch"]
    module = sys.modules.get("torch.utils.data.dataloader")
    base = getattr(module, "_BaseDataLoaderIter", None)
    if module is None or base is None or "__next__" not in base.__dict__:
        return f"torch {torch.__version__} fetches batches another way"
    loaders = loaders_of(pen)
    places = ((module.DataLoader, "__iter__", _make_iter), (base, "__next__", _make_next))
    wrapped = []
    for owner, name, make in places:
        real = getattr(owner, name)
        ours = make(pen, loaders, real)
        ours.__wrapped__ = real  # type: ignore[attr-defined]
        ours.__module__, ours.__qualname__, ours.__doc__ = real.__module__, real.__qualname__, real.__doc__
        setattr(owner, name, ours)
        wrapped.append((owner, name, real, ours))

    def remove() -> None:
        for owner, name, real, ours in wrapped:
            if owner.__dict__.get(name) is ours:
                setattr(owner, name, real)

    pen.guard.register(HOOK, remove)
    return ""


def _make_iter(pen: Pen, loaders: Loaders, real: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __iter__(self: Any) -> Any:  # noqa: N807  # stands for the method
        if pen.who() != pen.owner or pen.busy:
            return real(self)
        try:
            serial = loaders.start(self)
            pen.stamp(edges.ITERATOR)
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)
            return real(self)
        try:
            iterator = real(self)
        except BaseException:
            pen.raised()
            raise
        finally:
            try:
                pen.stamp(edges.ITERATOR + edges.CLOSE)
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)
        try:
            loaders.started(iterator, serial)
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)
        return iterator

    return __iter__


def _make_next(  # noqa: C901  # one hot path
    pen: Pen, loaders: Loaders, real: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    nxt, mask, codes, stamps, clock, who = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock, pen.who

    def __next__(self: Any) -> Any:  # noqa: N807  # stands for the method
        if who() != pen.owner or pen.busy:
            return real(self)
        try:
            if id(self) != pen.iterator:
                loaders.switch(self)
            k = nxt() & mask
            codes[k] = _OPEN
            stamps[k] = clock()
            pen.busy = True
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)
            return real(self)
        code = _NO_BATCH
        try:
            batch = real(self)
            code = _CLOSE
        except BaseException as error:
            if not isinstance(error, StopIteration):
                pen.raised()
            raise
        finally:
            pen.busy = False
            try:
                k = nxt() & mask
                codes[k] = code
                stamps[k] = clock()
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)
        if pen.look is not None:
            try:
                pen.look(batch)
            except Exception as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)
        return batch

    def renew() -> None:
        nonlocal nxt, clock, who
        nxt, clock, who = pen.nxt, pen.clock, pen.who

    pen.swaps.append(renew)
    return __next__


def _settings_of(loader: Any) -> LoaderInfo:
    batches, sampler = loader, getattr(loader, "batch_sampler", None)
    if getattr(loader, "batch_size", None) is None and type(sampler) is sys.modules["torch"].utils.data.BatchSampler:
        batches = sampler  # torch's own: what it says is what it does
    batch_size = getattr(batches, "batch_size", None)
    return LoaderInfo(
        number=0,
        num_workers=_whole(getattr(loader, "num_workers", None)),
        batch_size=_whole(batch_size),
        num_samples=_length(getattr(batches, "sampler", None)) if batch_size else None,
        drop_last=_flag(getattr(batches, "drop_last", None)),
        pin_memory=_flag(getattr(loader, "pin_memory", None)),
        persistent_workers=_flag(getattr(loader, "persistent_workers", None)),
        prefetch_factor=_whole(getattr(loader, "prefetch_factor", None)),
        dataset=type(getattr(loader, "dataset", None)).__name__[:80],
        is_iterable=_is_iterable(getattr(loader, "dataset", None)),
        has_own_sampler=_is_own(getattr(loader, "sampler", None)) or _is_own(getattr(loader, "batch_sampler", None)),
    )


def _is_iterable(dataset: Any) -> bool:
    return isinstance(dataset, sys.modules["torch"].utils.data.IterableDataset)


def _is_own(sampler: Any) -> bool:
    """Whether a sampler is the script's, not torch's."""
    return sampler is not None and not type(sampler).__module__.startswith("torch.")


def settings_of_foreign(loader: Any) -> LoaderInfo:
    """What any loader says of itself; its attributes are the user's, and may fail."""

    def ask(name: str) -> Any:
        try:
            return getattr(loader, name, None)
        except Exception as error:  # noqa: BLE001  # a property of the user's
            let_pass(error)
            return None

    dataset = ask("dataset")
    batch_size = _whole(ask("batch_size"))
    return LoaderInfo(
        number=0,
        num_workers=_whole(ask("num_workers")),
        batch_size=batch_size,
        num_samples=_length(ask("sampler")) if batch_size else None,
        drop_last=_flag(ask("drop_last")),
        pin_memory=_flag(ask("pin_memory")),
        persistent_workers=_flag(ask("persistent_workers")),
        prefetch_factor=_whole(ask("prefetch_factor")),
        dataset=type(loader if dataset is None else dataset).__name__[:80],
    )


def _settings_of_iterator(iterator: Any) -> LoaderInfo:
    batches = getattr(iterator, "_index_sampler", None)  # a BatchSampler, where batches are made by the loader
    batch_size = _whole(getattr(batches, "batch_size", None))
    return LoaderInfo(
        number=0,
        num_workers=_whole(getattr(iterator, "_num_workers", None)),
        batch_size=batch_size,
        num_samples=_length(getattr(batches, "sampler", None)) if batch_size else None,
        drop_last=_flag(getattr(batches, "drop_last", None)),
        pin_memory=_flag(getattr(iterator, "_pin_memory", None)),
        dataset=type(getattr(iterator, "_dataset", None)).__name__[:80],
    )


def _whole(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flag(value: Any) -> Optional[bool]:
    return value if isinstance(value, bool) else None


def _length(sampler: Any) -> Optional[int]:
    try:
        return len(sampler)
    except Exception as error:  # noqa: BLE001  # a sampler without an end, or with a __len__ of the user's that fails
        let_pass(error)
        return None
