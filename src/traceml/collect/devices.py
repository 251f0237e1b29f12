"""Samples the accelerators that the run itself uses; silent where there is no driver."""

from __future__ import annotations

from typing import Final, Iterable, Optional, Protocol

from traceml.collect.driver import Driver, DriverError, NvmlDriver
from traceml.collect.visible import by_index, by_uuid, entry_of
from traceml.schema.records import DeviceSample, RankIdentity

_RETRY_NS: Final = 30_000_000_000  # after the driver has failed
_KIND: Final = "cuda"


class DeviceReader(Protocol):
    """Reads devices by where a rank says it computes: `cuda:1` within what it may see."""

    def sample(self, at_ns: int, identities: Iterable[RankIdentity]) -> list[DeviceSample]:
        """One sample a device of these ranks, each device once."""

    def close(self) -> None:
        """Lets the driver go."""


class Nvml:
    """NVIDIA's devices by NVML: those of the run's own ranks, never their neighbours.

    Nothing is asked before a rank says which device it computes on. A driver that fails is let go, and tried again
    half a minute later.

    Args:
        driver: NVIDIA's own, unless a test says otherwise.
    """

    def __init__(self, driver: Optional[Driver] = None) -> None:
        self._driver = driver or NvmlDriver()
        self._is_open = False
        self._retry_ns = 0
        self._found: dict[RankIdentity, Optional[str]] = {}

    def sample(self, at_ns: int, identities: Iterable[RankIdentity]) -> list[DeviceSample]:
        """One sample a device of these ranks, each device once; none without a driver."""
        wanted = [identity for identity in identities if _ordinal(identity) is not None]
        if not wanted or at_ns < self._retry_ns:
            return []
        try:
            if not self._is_open:
                self._driver.open()
                self._is_open = True
            uuids = {self._uuid_of(identity) for identity in wanted} - {None}
        except DriverError:
            self._give_up(at_ns)
            return []
        samples = []
        for uuid in sorted(uuid for uuid in uuids if uuid is not None):
            try:
                samples.append(self._read(uuid, at_ns))
            except DriverError:
                self._found = {rank: known for rank, known in self._found.items() if known != uuid}
        if uuids and not samples:
            self._give_up(at_ns)
        return samples

    def close(self) -> None:
        """Lets the driver go."""
        if self._is_open:
            self._is_open = False
            self._driver.close()

    def _give_up(self, at_ns: int) -> None:
        self.close()
        self._retry_ns = at_ns + _RETRY_NS
        self._found.clear()

    def _uuid_of(self, identity: RankIdentity) -> Optional[str]:
        if identity not in self._found:
            self._found[identity] = self._find(identity)
        return self._found[identity]

    def _find(self, identity: RankIdentity) -> Optional[str]:
        """The device that a rank means; None where it cannot be told for sure: a neighbour's is worse than none."""
        ordinal = _ordinal(identity)
        assert ordinal is not None
        physical = list(self._driver.uuids())
        if identity.device_uuid:
            instances = [instance for uuid in physical if uuid for instance in self._driver.instances(uuid)]
            known = (*physical, *instances)
            return next((uuid for uuid in known if uuid and uuid.partition("-")[2] == identity.device_uuid), None)
        entry = entry_of(ordinal, identity.visible_devices)
        if entry is None:
            return None
        if entry.startswith("MIG-"):
            return by_uuid(entry, [instance for uuid in physical if uuid for instance in self._driver.instances(uuid)])
        if entry.startswith("GPU-"):
            found = by_uuid(entry, physical)
        else:
            names = [self._driver.name(uuid) if uuid else "" for uuid in physical]
            index = by_index(entry, names, identity.device_order)
            found = physical[index] if index is not None else None
        if not found:
            return None
        instances = list(self._driver.instances(found))
        return instances[0] if instances else found  # of a divided device CUDA sees the first instance

    def _read(self, uuid: str, at_ns: int) -> DeviceSample:
        driver = self._driver
        whole = driver.parent(uuid) if uuid.startswith("MIG-") else uuid
        is_part = whole != uuid
        memory = driver.memory(uuid)
        return DeviceSample(
            at_ns=at_ns,
            uuid=uuid,
            name=driver.name(uuid),
            # How busy a divided device is, and what it draws, is its other tenants' too.
            busy_percent=None if is_part else driver.busy_percent(uuid),
            memory_bytes=None if memory is None else memory[0],
            memory_limit_bytes=None if memory is None else memory[1],
            temperature_c=driver.temperature_c(whole),
            power_w=None if is_part else driver.power_w(uuid),
            throttle_reasons=driver.throttle_reasons(whole),
        )


def _ordinal(identity: RankIdentity) -> Optional[int]:
    """The n-th device of those that a rank may see; None where it does not compute on one, or has not said on which."""
    kind, _, number = identity.device.partition(":")
    if kind != _KIND:
        return None
    if number.isdigit():
        return int(number)
    visible = identity.visible_devices
    is_only = visible is not None and entry_of(0, visible) is not None and entry_of(1, visible) is None
    return 0 if is_only else None
