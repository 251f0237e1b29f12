"""Says how a run stands at this moment: what each rank does, and the newest look at host and devices."""

from __future__ import annotations

from typing import NamedTuple, Optional

from traceml.schema.records import DeviceSample, HostSample, LiveSlot, RankState


class Current(NamedTuple):
    """A moment of a run; a rank that has ended without a goodbye is in `slots`, and not alive."""

    slots: tuple[LiveSlot, ...] = ()
    states: tuple[RankState, ...] = ()
    host: Optional[HostSample] = None
    devices: tuple[DeviceSample, ...] = ()
