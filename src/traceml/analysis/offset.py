"""Bounds how far a device's clock is from the host's, from what each event proves; drift widens the bounds."""

from __future__ import annotations

from typing import Final, NamedTuple, Optional

_DRIFT: Final = 50e-6  # two quartz clocks part by at most so much of the time between; 0.2 ms in 4 s
_SLACK_NS: Final = 50_000  # stamp and event are not taken at one moment: contradictions below this are none
_MAX_BREAKS: Final = 3  # once may be a poll that was told late; clocks that part on and on say nothing
_FORGIVEN_NS: Final = 60_000_000_000  # a break so long ago does not count


class Offset(NamedTuple):
    """Bounds of host time minus device time, in ns, as of the device time `at_ns`; None is not bounded."""

    low_ns: Optional[int] = None
    high_ns: Optional[int] = None
    at_ns: int = 0
    num_breaks: int = 0  # how often the bounds contradicted each other, so that all were dropped
    broke_ns: int = 0  # the device time of the last of them

    def least(self, bound_ns: int, at_ns: int) -> Offset:
        """Takes in that at the device time `at_ns` the offset was at least `bound_ns`."""
        moved = self.at(max(self.at_ns, at_ns))
        bound = bound_ns - _drift_ns(moved.at_ns - at_ns)
        if moved.high_ns is not None and bound > moved.high_ns + _SLACK_NS:
            return moved.broken()
        return moved if moved.low_ns is not None and bound <= moved.low_ns else moved._replace(low_ns=bound)

    def most(self, bound_ns: int, at_ns: int) -> Offset:
        """Takes in that at the device time `at_ns` the offset was at most `bound_ns`."""
        moved = self.at(max(self.at_ns, at_ns))
        bound = bound_ns + _drift_ns(moved.at_ns - at_ns)
        if moved.low_ns is not None and bound < moved.low_ns - _SLACK_NS:
            return moved.broken()
        return moved if moved.high_ns is not None and bound >= moved.high_ns else moved._replace(high_ns=bound)

    def at(self, at_ns: int) -> Offset:
        """The bounds as of another device time: what is proved of one moment says less of others."""
        if at_ns == self.at_ns:
            return self
        drift = _drift_ns(abs(at_ns - self.at_ns)) + 1  # rounded up: many small moves add up
        low = None if self.low_ns is None else self.low_ns - drift
        high = None if self.high_ns is None else self.high_ns + drift
        return Offset(low, high, at_ns, self.num_breaks, self.broke_ns)

    def broken(self) -> Offset:
        """The clocks part faster than we allow, or one of them jumped: begin anew."""
        is_forgiven = self.num_breaks < _MAX_BREAKS and self.at_ns - self.broke_ns > _FORGIVEN_NS
        return Offset(None, None, self.at_ns, 1 if is_forgiven else self.num_breaks + 1, self.at_ns)

    def behind_ns(self, device_ns: int, host_ns: int) -> tuple[Optional[int], Optional[int]]:
        """How long after the host's moment the device came to its own: bounds in ns, at least 0."""
        if self.num_breaks >= _MAX_BREAKS:
            return None, None
        here = self.at(device_ns)
        low = None if here.low_ns is None else max(0, device_ns + here.low_ns - host_ns)
        high = None if here.high_ns is None else max(low or 0, device_ns + here.high_ns - host_ns)
        return low, high


def _drift_ns(between_ns: int) -> int:
    return int(_DRIFT * between_ns)
