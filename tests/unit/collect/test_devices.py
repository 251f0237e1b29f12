"""Tests the device reader where there is no driver, and which device a rank means."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from traceml.collect.devices import Nvml
from traceml.schema.records import RankIdentity


class NvmlError(Exception):
    """As pynvml's."""


class FakeNvml:
    """Two devices; one reading that this driver does not have."""

    def __init__(self) -> None:
        self.num_inits = 0
        self.answers: dict[str, Any] = {
            "NVMLError": NvmlError,
            "NVML_TEMPERATURE_GPU": 0,
            "nvmlClocksThrottleReasonSwPowerCap": 4,
            "nvmlInit": lambda: self.count(1),
            "nvmlShutdown": lambda: self.count(-1),
            "nvmlDeviceGetHandleByIndex": lambda number: number,
            "nvmlDeviceGetUUID": lambda handle: b"GPU-%d" % handle,
            "nvmlDeviceGetName": lambda _: "H200",
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=10, total=100),
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=24),
            "nvmlDeviceGetPowerUsage": self.refuse,
            "nvmlDeviceGetTemperature": lambda _, sensor: 42 + sensor,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 5,
        }

    def __getattr__(self, name: str) -> Any:
        try:
            return self.answers[name]
        except KeyError:
            raise AttributeError(name) from None

    def count(self, change: int) -> None:
        """Keeps how often it is initialised."""
        self.num_inits += change

    def refuse(self, handle: int) -> int:
        """What this driver does not have."""
        raise NvmlError(handle)


def rank(device: str) -> RankIdentity:
    return RankIdentity(0, 0, 1, 1, 0, device=device)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake)
    return fake


def test_the_runs_own_devices_are_read_each_once(nvml: FakeNvml) -> None:
    reader = Nvml({"CUDA_VISIBLE_DEVICES": "3,1"})
    samples = reader.sample(5, [rank("cuda:1"), rank("cuda:1")])
    reader.close()

    assert [sample.uuid for sample in samples] == ["GPU-1"]
    assert (samples[0].busy_percent, samples[0].memory_bytes, samples[0].temperature_c) == (24.0, 10, 42.0)
    assert samples[0].throttle_reasons == ("power cap",)
    assert nvml.num_inits == 0


def test_what_the_driver_does_not_tell_is_none(nvml: FakeNvml) -> None:
    assert Nvml({}).sample(5, [rank("cuda")])[0].power_w is None


def test_on_a_cpu_nothing_is_initialised(nvml: FakeNvml) -> None:
    assert Nvml({}).sample(5, [rank("cpu")]) == []
    assert nvml.num_inits == 0


def test_without_a_driver_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)

    assert Nvml({}).sample(5, [rank("cuda:0")]) == []
