"""Holds the device reader to the run's own devices: whose they are, MIG, drivers that fail, neighbours left alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Sequence

import pytest

from traceml.collect.devices import Nvml
from traceml.collect.driver import DriverError
from traceml.collect.visible import by_index, by_uuid, entry_of
from traceml.schema.records import DeviceSample, RankIdentity

SECOND = 1_000_000_000


@dataclass
class Board:
    """What the fake driver says of one device."""

    name: str = "H200"
    busy: Optional[float] = 24.0
    memory: Optional[tuple[int, int]] = (10, 100)
    temperature: Optional[float] = 42.0
    power: Optional[float] = 300.0
    reasons: tuple[str, ...] = ()
    instances: dict[str, Board] = field(default_factory=dict)


class FakeDriver:
    """A host's devices, in a dict by UUID; who was asked for its readings is noted."""

    def __init__(self, boards: dict[str, Board]) -> None:
        self.boards = boards
        self.asked: set[str] = set()
        self.num_open = self.num_opens = 0
        self.broken: set[str] = set()  # what does not answer: a UUID, or "" for the whole driver

    def _board(self, uuid: str) -> Board:
        if not self.num_open:
            raise DriverError("closed")
        if self.broken & {"", uuid}:
            raise DriverError("GPU is lost")
        for known, board in self.boards.items():
            if uuid in (known, *board.instances):
                return board.instances.get(uuid, board)
        raise DriverError("no such device")

    def _asked(self, uuid: str) -> Board:
        self.asked.add(uuid)
        return self._board(uuid)

    def open(self) -> None:
        self.num_opens += 1
        if "" in self.broken:
            raise DriverError("driver not loaded")
        self.num_open += 1

    def close(self) -> None:
        self.num_open -= 1

    def uuids(self) -> Sequence[str]:
        self._board(next(iter(self.boards)))
        return list(self.boards)

    def instances(self, uuid: str) -> Sequence[str]:
        return list(self._board(uuid).instances)

    def parent(self, uuid: str) -> str:
        return next(known for known, board in self.boards.items() if uuid in board.instances)

    def name(self, uuid: str) -> str:
        return self._board(uuid).name

    def busy_percent(self, uuid: str) -> Optional[float]:
        return self._asked(uuid).busy

    def memory(self, uuid: str) -> Optional[tuple[int, int]]:
        return self._asked(uuid).memory

    def temperature_c(self, uuid: str) -> Optional[float]:
        return self._asked(uuid).temperature

    def power_w(self, uuid: str) -> Optional[float]:
        return self._asked(uuid).power

    def throttle_reasons(self, uuid: str) -> tuple[str, ...]:
        return self._asked(uuid).reasons


def host(number: int = 8, **more: Board) -> FakeDriver:
    return FakeDriver({**{f"GPU-{index}a": Board() for index in range(number)}, **more})


def rank(device: str, visible: str | None = None, *, order: str = "", uuid: str = "", number: int = 0) -> RankIdentity:
    return RankIdentity(
        number, number, 1, 1, 0, device=device, visible_devices=visible, device_order=order, device_uuid=uuid
    )


def uuids(driver: FakeDriver, *ranks: RankIdentity) -> list[str]:
    return [sample.uuid for sample in Nvml(driver).sample(5, ranks)]


@pytest.mark.parametrize(
    ("visible", "ordinal", "entry"),
    [
        (None, 3, "3"),
        ("3,1", 0, "3"),
        ("3,1", 1, "1"),
        (" 3 , 01 ", 1, "1"),
        ("3,1", 2, None),
        ("", 0, None),
        ("-1", 0, None),
        ("2,-1,4", 0, "2"),
        ("2,-1,4", 1, None),
        ("NoDevFiles", 0, None),
        ("2,2", 0, None),
        ("GPU-5f,GPU-77", 1, "GPU-77"),
        ("MIG-c0,MIG-c1", 1, "MIG-c1"),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(visible: str | None, ordinal: int, entry: str | None) -> None:
    assert entry_of(ordinal, visible) == entry


def test_an_index_is_the_drivers_only_where_both_count_alike() -> None:
    alike, mixed = ["H200"] * 3, ["T400", "H200", "H200"]

    assert by_index("2", alike, "") == 2
    assert by_index("2", mixed, "PCI_BUS_ID") == 2
    assert by_index("2", mixed, "") is None
    assert by_index("2", mixed, "FASTEST_FIRST") is None
    assert by_index("3", alike, "") is None


def test_the_beginning_of_a_uuid_means_a_device_only_where_it_means_one() -> None:
    assert by_uuid("GPU-5f", ["GPU-5f11", "GPU-6011"]) == "GPU-5f11"
    assert by_uuid("GPU-", ["GPU-5f11", "GPU-6011"]) is None
    assert by_uuid("GPU-9", ["GPU-5f11", "GPU-6011"]) is None


def test_the_runs_own_devices_are_sampled_each_once_and_nobody_elses() -> None:
    driver = host()
    two = [rank("cuda:0", "6,1", number=0), rank("cuda:1", "6,1", number=1), rank("cuda:1", "6,1", number=2)]

    assert uuids(driver, *two) == ["GPU-1a", "GPU-6a"]
    assert driver.asked == {"GPU-1a", "GPU-6a"}


def test_each_rank_is_read_by_its_own_variable() -> None:
    assert uuids(host(), rank("cuda:0", "5", number=0), rank("cuda:0", "2", number=1)) == ["GPU-2a", "GPU-5a"]


def test_a_uuid_that_torch_knows_goes_before_every_count() -> None:
    assert uuids(host(), rank("cuda:0", "5", uuid="3a")) == ["GPU-3a"]


def test_by_uuid_in_the_variable() -> None:
    assert uuids(host(), rank("cuda:1", "GPU-7a,GPU-2")) == ["GPU-2a"]


@pytest.mark.parametrize(
    ("device", "visible"),
    [("cpu", None), ("cuda", None), ("cuda", "1,2"), ("cuda:0", ""), ("cuda:4", "1,2"), ("cuda:9", None)],
)
def test_where_it_cannot_be_told_which_device_nothing_is_sampled(device: str, visible: str | None) -> None:
    driver = host()

    assert uuids(driver, rank(device, visible)) == []
    assert driver.asked == set()


def test_on_a_cpu_the_driver_is_not_even_opened() -> None:
    driver = host()

    assert uuids(driver, rank("cpu")) == []
    assert driver.num_opens == 0


def test_the_only_device_that_a_rank_may_see_needs_no_number() -> None:
    assert uuids(host(), rank("cuda", "4")) == ["GPU-4a"]


def test_devices_of_two_kinds_are_counted_by_the_bus_only_where_cuda_does() -> None:
    driver = host(2, **{"GPU-9a": Board(name="T400")})

    assert uuids(driver, rank("cuda:1")) == []
    assert uuids(driver, rank("cuda:1", order="PCI_BUS_ID")) == ["GPU-1a"]


DIVIDED = Board(
    busy=99.0,
    power=650.0,
    reasons=("temperature",),
    instances={
        "MIG-c0": Board("H200 MIG 1g.18gb", None, (3, 18), None, None),
        "MIG-c1": Board("H200 MIG 2g.35gb", None, (5, 35), None, None),
    },
)


def test_of_a_mig_instance_how_busy_it_is_is_not_known_and_its_memory_is_its_own() -> None:
    driver = host(2, **{"GPU-8a": DIVIDED})

    (sample,) = Nvml(driver).sample(5, [rank("cuda:0", "MIG-c1")])

    assert sample == DeviceSample(
        5, "MIG-c1", "H200 MIG 2g.35gb", None, 5, 35, 42.0, None, throttle_reasons=("temperature",)
    )


def test_a_divided_device_meant_by_its_index_is_its_first_instance() -> None:
    assert uuids(host(2, **{"GPU-8a": DIVIDED}), rank("cuda:0", "2")) == ["MIG-c0"]


def test_an_instance_is_known_by_torchs_uuid_too() -> None:
    assert uuids(host(2, **{"GPU-8a": DIVIDED}), rank("cuda:0", "2", uuid="c1")) == ["MIG-c1"]


def test_what_a_device_does_not_tell_is_none() -> None:
    driver = FakeDriver({"GPU-0a": Board(busy=None, memory=None, temperature=None, power=None)})

    assert Nvml(driver).sample(5, [rank("cuda:0")]) == [DeviceSample(5, "GPU-0a", "H200")]


def test_without_a_driver_it_is_silent_and_asks_again_half_a_minute_later() -> None:
    driver = host()
    driver.broken = {""}
    reader = Nvml(driver)

    assert [reader.sample(second * SECOND, [rank("cuda:0")]) for second in range(29)] == [[]] * 29
    assert driver.num_opens == 1
    driver.broken = set()
    assert len(reader.sample(31 * SECOND, [rank("cuda:0")])) == 1


def test_a_driver_that_disappears_is_let_go_and_found_again() -> None:
    driver = host()
    reader = Nvml(driver)
    assert len(reader.sample(0, [rank("cuda:0")])) == 1

    driver.broken = {""}
    assert reader.sample(SECOND, [rank("cuda:0")]) == []
    assert driver.num_open == 0
    driver.broken = set()
    assert reader.sample(2 * SECOND, [rank("cuda:0")]) == []
    assert len(reader.sample(32 * SECOND, [rank("cuda:0")])) == 1
    reader.close()
    reader.close()
    assert driver.num_open == 0


def test_a_device_that_is_lost_leaves_the_others() -> None:
    driver = host()
    reader = Nvml(driver)
    both = [rank("cuda:1", number=0), rank("cuda:2", number=1)]
    assert len(reader.sample(0, both)) == 2

    driver.broken = {"GPU-1a"}
    assert [sample.uuid for sample in reader.sample(SECOND, both)] == ["GPU-2a"]
    driver.broken = set()
    assert len(reader.sample(2 * SECOND, both)) == 2
