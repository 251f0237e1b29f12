"""Samples the accelerators that the run itself uses; silent where there is no driver."""

from __future__ import annotations

from typing import Any, Final, Iterable, Mapping, Optional, Protocol

from traceml.schema.records import DeviceSample, RankIdentity

_REASONS: Final = {
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "temperature",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "temperature (hardware)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}


class DeviceReader(Protocol):
    """Reads devices by where a rank says it computes: `cuda:1` within what it may see."""

    def sample(self, at_ns: int, identities: Iterable[RankIdentity]) -> list[DeviceSample]:
        """One sample a device of these ranks, each device once."""

    def close(self) -> None:
        """Lets the driver go."""


class Nvml:
    """NVIDIA's devices by NVML. Nothing is initialised before a rank says that it computes on one.

    Args:
        environ: The run's environment, for CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._visible = [entry.strip() for entry in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
        self._nvml: Any = None
        self._is_off = False
        self._handles: dict[str, Any] = {}

    def sample(self, at_ns: int, identities: Iterable[RankIdentity]) -> list[DeviceSample]:
        """One sample a device of these ranks; none without a driver."""
        wanted = {identity.device for identity in identities if identity.device.startswith("cuda")}
        if not wanted or not self._is_on():
            return []
        found = {}
        for device in sorted(wanted):
            sample = self._read(device, at_ns)
            if sample is not None:
                found[sample.uuid] = sample
        return list(found.values())

    def close(self) -> None:
        """Lets the driver go."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None

    def _is_on(self) -> bool:
        if self._is_off or self._nvml is not None:
            return not self._is_off
        try:
            import pynvml  # noqa: PLC0415  # only where a rank computes on CUDA

            pynvml.nvmlInit()
        except ImportError:
            self._is_off = True
            return False
        except pynvml.NVMLError:
            self._is_off = True
            return False
        self._nvml = pynvml
        return True

    def _read(self, device: str, at_ns: int) -> Optional[DeviceSample]:
        nvml = self._nvml
        try:
            handle = self._handles.get(device) or self._find(device)
            self._handles[device] = handle
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        except (nvml.NVMLError, IndexError, ValueError):
            return None
        memory = self._try("nvmlDeviceGetMemoryInfo", handle)
        busy = self._try("nvmlDeviceGetUtilizationRates", handle)
        power = self._try("nvmlDeviceGetPowerUsage", handle)
        return DeviceSample(
            at_ns=at_ns,
            uuid=uuid,
            name=_text(self._try("nvmlDeviceGetName", handle) or ""),
            busy_percent=None if busy is None else float(busy.gpu),
            memory_bytes=None if memory is None else int(memory.used),
            memory_limit_bytes=None if memory is None else int(memory.total),
            temperature_c=_number(self._try("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=None if power is None else power / 1000,
            throttle_reasons=self._reasons(self._try("nvmlDeviceGetCurrentClocksThrottleReasons", handle)),
        )

    def _find(self, device: str) -> Any:
        number = int(device.partition(":")[2] or "0")
        if not self._visible:
            return self._nvml.nvmlDeviceGetHandleByIndex(number)
        entry = self._visible[number]
        if entry.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(entry))
        return self._nvml.nvmlDeviceGetHandleByUUID(entry.encode())

    def _try(self, name: str, *arguments: Any) -> Any:
        """One reading; None where this device or driver does not have it."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except self._nvml.NVMLError:
            return None

    def _reasons(self, mask: Optional[int]) -> tuple[str, ...]:
        if not mask:
            return ()
        return tuple(text for name, text in _REASONS.items() if mask & getattr(self._nvml, name, 0))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _number(value: Any) -> Optional[float]:
    return None if value is None else float(value)
