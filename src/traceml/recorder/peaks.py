"""Takes the allocator's peak of a stretch of time by a reset, and gives everybody else the peak they would have had.

What was the peak before our resets is kept, counter by counter, and put into what `max_memory_allocated`,
`memory_stats` and their kin read, until the script's own reset. Torch's readers all end in one C function, so that is
where we stand. After a shutdown we stand there for as long as our resets still show, and no longer.
"""

from __future__ import annotations

from typing import Any, Callable, Final, Mapping, Optional

from traceml.recorder.accelerator import Accelerator
from traceml.recorder.pen import Pen
from traceml.recorder.tracebacks import conceal

HOOK: Final = "peaks"
_PEAK: Final = "peak"

Floor = dict[Any, Any]  # as nested as the counters: what the peaks would be at least, were it not for our resets


class Peaks:
    """The peaks of one allocator's counters, ours and the script's."""

    def __init__(self, pen: Pen, accelerator: Accelerator) -> None:
        self._pen, self._accelerator, self._counters = pen, accelerator, accelerator.counters
        self._floors: dict[int, Floor] = {}  # by device: the script's
        self._highest: dict[int, dict[str, int]] = {}  # by device: ours, over the script's own resets
        self._wrapped: list[tuple[str, Any, Any]] = []
        self._is_over = False

    def install(self) -> None:
        """Stands before the readers and the resets."""
        accelerator = self._accelerator
        self._pen.guard.register(HOOK, self.remove)
        for names, make in ((accelerator.reads, self._make_read), (accelerator.resets, self._make_reset)):
            for name in names:
                real = getattr(self._counters, name, None)
                if real is not None:
                    real = self._follow(real)
                    ours = make(real)
                    ours.peaks = self  # type: ignore[attr-defined]  # by which a later session finds us
                    setattr(self._counters, name, ours)
                    self._wrapped.append((name, real, ours))

    def read(self, device: int) -> Mapping[str, Any]:
        """All counters as they are since the newest reset, whoever's it was."""
        found: Mapping[str, Any] = self._wrapped[0][1](device)
        return found

    def highest(self, device: int, counters: Mapping[str, Any], name: str) -> Optional[int]:
        """The peak of a counter ("allocated_bytes") since our newest reset, over the script's resets since then."""
        now: Optional[int] = counters.get(name, {}).get("all", {}).get(_PEAK)
        before = self._highest.get(device, {}).get(name)
        return now if before is None or now is None else max(now, before)

    def begin(self, device: int, counters: Mapping[str, Any]) -> None:
        """Our peaks count from now on; `counters` were read just before."""
        raise_to(self._floors.setdefault(device, {}), counters)
        self._highest.pop(device, None)
        self._reset(device)

    def remove(self) -> None:
        """Ours count no more. Who reads the peaks must not be misled by our resets, so we may have to stay a while."""
        self._is_over = True
        self._highest.clear()
        if self._pen.owner is None:
            self._floors.clear()  # a forked child has no counters
        self._leave()

    def _follow(self, real: Any) -> Any:
        """Of an earlier session in this process some of us may stand here still: takes its place, and what it keeps."""
        earlier = getattr(real, "peaks", None)
        if not isinstance(earlier, Peaks):
            return real
        self._floors = earlier._floors  # noqa: SLF001  # one class
        earlier._wrapped.clear()  # noqa: SLF001  # likewise
        return real.__wrapped__

    def _reset(self, device: int) -> None:
        next(real for name, real, _ in self._wrapped if name in self._accelerator.resets)(device)

    def _leave(self) -> None:
        """Takes us off, once the session is over and no reset of ours shows any more."""
        if self._is_over and not self._floors:
            while self._wrapped:
                name, real, ours = self._wrapped.pop()
                if getattr(self._counters, name) is ours:
                    setattr(self._counters, name, real)

    def _make_read(self, real: Callable[[int], Any]) -> Callable[[int], Any]:
        def read(device: int) -> Any:
            try:
                found = real(device)
            except BaseException:
                conceal()
                raise
            floor = self._floors.get(device)
            if floor:
                try:
                    if not lift(found, floor) and self._is_over:
                        del self._floors[device]
                        self._leave()
                except BaseException as error:  # noqa: BLE001  # guard
                    self._pen.guard.fault(HOOK, error)
            return found

        return _as(real, read)

    def _make_reset(self, real: Callable[[int], Any]) -> Callable[[int], Any]:
        def reset(device: int) -> Any:
            try:
                self._note(device)
            except BaseException as error:  # noqa: BLE001  # guard
                self._pen.guard.fault(HOOK, error)
            try:
                return real(device)
            except BaseException:
                conceal()
                raise
            finally:
                self._floors.pop(device, None)
                self._leave()

        return _as(real, reset)

    def _note(self, device: int) -> None:
        """The script resets: what our peaks were until now is kept."""
        if self._is_over:
            return
        counters = self.read(device)
        kept = self._highest.setdefault(device, {})
        for name in ("allocated_bytes", "reserved_bytes"):
            peak = counters.get(name, {}).get("all", {}).get(_PEAK)
            if peak is not None:
                kept[name] = max(peak, kept.get(name, 0))


def raise_to(floor: Floor, counters: Mapping[Any, Any]) -> None:
    """Raises every peak in `floor` to that in `counters`."""
    for key, value in counters.items():
        if isinstance(value, Mapping):
            raise_to(floor.setdefault(key, {}), value)
        elif key == _PEAK:
            floor[key] = max(value, floor.get(key, value))


def lift(counters: dict[Any, Any], floor: Floor) -> bool:
    """Raises every peak in `counters` to that in `floor`; whether there was any to raise."""
    was_any = False
    for key, value in floor.items():
        found = counters.get(key)
        if found is None:
            continue  # a pool that is gone
        if isinstance(value, dict):
            was_any |= lift(found, value)
        elif found < value:
            counters[key] = value
            was_any = True
    return was_any


def _as(real: Any, ours: Callable[[int], Any]) -> Callable[[int], Any]:
    ours.__name__, ours.__doc__ = getattr(real, "__name__", ours.__name__), real.__doc__
    ours.__wrapped__ = real  # type: ignore[attr-defined]  # as functools.wraps would
    return ours
