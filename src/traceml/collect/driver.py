"""Asks NVIDIA's driver (NVML), for what one device holds and does. Nothing here knows which device is whose."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Callable, Final, Optional, Protocol, Sequence

_REASONS: Final = {
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "temperature",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "temperature (hardware)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}
_NO_READING: Final = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_NO_PERMISSION", "NVML_ERROR_FUNCTION_NOT_FOUND")


class DriverError(Exception):
    """The driver, or a device, does not answer (any more)."""


class Driver(Protocol):
    """What is asked of a driver. Devices go by their UUID; those of MIG instances begin with "MIG-".

    Every call may raise DriverError; a reading that a device does not have is None.
    """

    def open(self) -> None:
        """Begins; a second call after `close` begins anew."""
        ...

    def close(self) -> None:
        """Lets the driver go. Never raises."""
        ...

    def uuids(self) -> Sequence[str]:
        """The physical devices, as the driver counts them."""
        ...

    def instances(self, uuid: str) -> Sequence[str]:
        """The MIG instances of a physical device, in order; none where it is not divided."""
        ...

    def parent(self, uuid: str) -> str:
        """The physical device of a MIG instance."""
        ...

    def name(self, uuid: str) -> str:
        """As people know it."""
        ...

    def busy_percent(self, uuid: str) -> Optional[float]:
        """How much of the time something ran on it."""
        ...

    def memory(self, uuid: str) -> Optional[tuple[int, int]]:
        """Bytes in use, and in all."""
        ...

    def temperature_c(self, uuid: str) -> Optional[float]:
        """Of the chip."""
        ...

    def power_w(self, uuid: str) -> Optional[float]:
        """Of the board."""
        ...

    def throttle_reasons(self, uuid: str) -> tuple[str, ...]:
        """Why its clocks are held down."""
        ...


class NvmlDriver:
    """NVIDIA's own library, by its Python binding, which is loaded when it is asked for."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._parents: dict[str, str] = {}

    def open(self) -> None:
        """Loads the library and begins.

        Raises:
            DriverError: There is none.
        """
        try:
            import pynvml  # noqa: PLC0415  # only where a rank computes on CUDA
        except ImportError as error:
            raise DriverError(str(error)) from None
        self._nvml = pynvml
        self._call("nvmlInit")

    def close(self) -> None:
        """Lets the driver go."""
        if self._nvml is not None:
            with suppress(DriverError):
                self._call("nvmlShutdown")
        self._nvml = None
        self._handles.clear()
        self._parents.clear()

    def uuids(self) -> Sequence[str]:
        """The physical devices; one that does not answer stands as ""."""
        found = []
        for index in range(self._call("nvmlDeviceGetCount")):
            try:
                found.append(self._know(self._call("nvmlDeviceGetHandleByIndex", index)))
            except DriverError:
                found.append("")  # lost, or not ours to look at: the others keep their places
        return found

    def instances(self, uuid: str) -> Sequence[str]:
        """The MIG instances of a physical device."""
        handle = self._handle(uuid)
        mode = self._read("nvmlDeviceGetMigMode", handle)
        if not mode or not mode[0]:
            return ()
        found = []
        for index in range(self._read("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            try:
                instance = self._know(self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index))
            except DriverError:
                continue  # not every place is taken
            self._parents[instance] = uuid
            found.append(instance)
        return found

    def parent(self, uuid: str) -> str:
        """The physical device of a MIG instance."""
        if uuid not in self._parents:
            whole = self._call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self._handle(uuid))
            self._parents[uuid] = self._know(whole)
        return self._parents[uuid]

    def name(self, uuid: str) -> str:
        """As the driver names it."""
        return _text(self._read("nvmlDeviceGetName", self._handle(uuid)) or "")

    def busy_percent(self, uuid: str) -> Optional[float]:
        """Of the driver's own sample period, up to a second."""
        found = self._read("nvmlDeviceGetUtilizationRates", self._handle(uuid))
        return None if found is None else float(found.gpu)

    def memory(self, uuid: str) -> Optional[tuple[int, int]]:
        """Bytes in use, and in all."""
        found = self._read("nvmlDeviceGetMemoryInfo", self._handle(uuid))
        return None if found is None else (int(found.used), int(found.total))

    def temperature_c(self, uuid: str) -> Optional[float]:
        """Of the chip."""
        sensor = getattr(self._nvml, "NVML_TEMPERATURE_GPU", 0)
        found = self._read("nvmlDeviceGetTemperature", self._handle(uuid), sensor)
        return None if found is None else float(found)

    def power_w(self, uuid: str) -> Optional[float]:
        """Of the board."""
        found = self._read("nvmlDeviceGetPowerUsage", self._handle(uuid))
        return None if found is None else found / 1000

    def throttle_reasons(self, uuid: str) -> tuple[str, ...]:
        """Why its clocks are held down, idle not among it."""
        mask = self._read("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle(uuid)) or 0
        return tuple(text for name, text in _REASONS.items() if mask & getattr(self._nvml, name, 0))

    def _know(self, handle: Any) -> str:
        uuid = _text(self._call("nvmlDeviceGetUUID", handle))
        self._handles[uuid] = handle
        return uuid

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = self._call("nvmlDeviceGetHandleByUUID", uuid.encode())
        return self._handles[uuid]

    def _read(self, name: str, *arguments: Any) -> Any:
        """One reading; None where this device or driver does not have it."""
        return self._call(name, *arguments, absent=_NO_READING)

    def _call(self, name: str, *arguments: Any, absent: tuple[str, ...] = ()) -> Any:
        if self._nvml is None:
            raise DriverError("closed")
        try:
            function: Callable[..., Any] = getattr(self._nvml, name)
            return function(*arguments)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) in [getattr(self._nvml, code, -1) for code in absent]:
                return None
            raise DriverError(f"{name}: {error}") from None
        except (AttributeError, OSError, UnicodeError) as error:  # a binding that lacks it, a library that went away
            if absent and isinstance(error, AttributeError):
                return None
            raise DriverError(f"{name}: {error}") from None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
