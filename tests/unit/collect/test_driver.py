"""Holds the driver's own binding to the Protocol, on a stand-in for NVIDIA's Python library."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from traceml.collect.devices import Nvml
from traceml.collect.driver import DriverError, NvmlDriver
from traceml.schema.records import RankIdentity

NOT_SUPPORTED, LOST = 3, 15


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def refuse(value: int) -> Any:
    def function(*_: Any) -> None:
        raise NvmlError(value)

    return function


def library(**more: Any) -> SimpleNamespace:
    """Two devices, the second one divided; handles are their UUIDs."""
    counts = SimpleNamespace(inits=0)
    places = {("GPU-1a", 0): "MIG-c0", ("GPU-1a", 3): "MIG-c3"}

    def count(change: int) -> None:
        counts.inits += change

    def instance(device: str, index: int) -> str:
        if (device, index) not in places:
            raise NvmlError(6)
        return places[device, index]

    answers = {
        "counts": counts,
        "NVMLError": NvmlError,
        "NVML_ERROR_NOT_SUPPORTED": NOT_SUPPORTED,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlClocksThrottleReasonSwPowerCap": 4,
        "nvmlInit": lambda: count(1),
        "nvmlShutdown": lambda: count(-1),
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"GPU-{index}a",
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid.decode(),
        "nvmlDeviceGetUUID": lambda handle: handle.encode(),
        "nvmlDeviceGetMigMode": lambda handle: [handle == "GPU-1a", 0],
        "nvmlDeviceGetMaxMigDeviceCount": lambda _: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": instance,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda _: "GPU-1a",
        "nvmlDeviceGetName": lambda _: b"H200",
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=10, total=100),
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=24),
        "nvmlDeviceGetPowerUsage": refuse(NOT_SUPPORTED),
        "nvmlDeviceGetTemperature": lambda _, sensor: 42 + sensor,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 5,
    }
    return SimpleNamespace(**{**answers, **more})


def opened(monkeypatch: pytest.MonkeyPatch, found: Any) -> NvmlDriver:
    monkeypatch.setitem(sys.modules, "pynvml", found)
    driver = NvmlDriver()
    driver.open()
    return driver


def test_readings_come_as_the_protocol_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = opened(monkeypatch, library())

    assert driver.uuids() == ["GPU-0a", "GPU-1a"]
    assert (driver.name("GPU-0a"), driver.memory("GPU-0a"), driver.busy_percent("GPU-0a")) == ("H200", (10, 100), 24.0)
    assert (driver.temperature_c("GPU-0a"), driver.power_w("GPU-0a")) == (42.0, None)
    assert driver.throttle_reasons("GPU-0a") == ("power cap",)


def test_instances_are_those_places_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = opened(monkeypatch, library())

    assert driver.instances("GPU-0a") == ()
    assert driver.instances("GPU-1a") == ["MIG-c0", "MIG-c3"]
    assert driver.parent("MIG-c3") == "GPU-1a"


def test_a_device_that_is_lost_keeps_the_place_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> str:
        if index == 0:
            raise NvmlError(LOST)
        return f"GPU-{index}a"

    assert opened(monkeypatch, library(nvmlDeviceGetHandleByIndex=handle)).uuids() == ["", "GPU-1a"]


def test_an_error_that_is_not_a_missing_reading_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = opened(monkeypatch, library(nvmlDeviceGetUtilizationRates=refuse(LOST)))

    with pytest.raises(DriverError, match="nvmlDeviceGetUtilizationRates"):
        driver.busy_percent("GPU-0a")


def test_an_older_binding_lacks_readings_and_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = library()
    del found.nvmlDeviceGetMigMode, found.nvmlDeviceGetCurrentClocksThrottleReasons
    driver = opened(monkeypatch, found)

    assert driver.instances("GPU-1a") == ()
    assert driver.throttle_reasons("GPU-0a") == ()


def test_closing_never_raises_and_what_follows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = opened(monkeypatch, library(nvmlShutdown=refuse(1)))

    driver.close()
    driver.close()

    with pytest.raises(DriverError):
        driver.uuids()


def test_without_the_library_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert Nvml().sample(5, [RankIdentity(0, 0, 1, 1, 0, device="cuda:0")]) == []


def test_through_the_reader_it_is_opened_and_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = library()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    reader = Nvml()

    samples = [reader.sample(n, [RankIdentity(0, 0, 1, 1, 0, device="cuda:0", visible_devices="1")]) for n in (5, 6)]
    reader.close()

    assert [[sample.uuid for sample in round_] for round_ in samples] == [["MIG-c0"], ["MIG-c0"]]
    assert samples[0][0].busy_percent is None
    assert found.counts.inits == 0
