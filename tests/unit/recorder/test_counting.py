"""Holds the counting of a batch to what is plain in it, and to saying nothing where it is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from traceml.recorder.hooks.counting import num_samples, num_tokens


def tensor(*shape: int) -> Any:
    return SimpleNamespace(shape=shape, numel=lambda: 0)


class Raising:
    @property
    def shape(self) -> Any:
        message = "this kind of tensor has no sizes"
        raise RuntimeError(message)


class Lazy:
    shape = property(lambda _: object())


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (tensor(8, 3), 8),
        ((tensor(8, 3), tensor(8)), 8),
        ([tensor(7, 2)], 7),
        ((tensor(0, 3), tensor(0)), 0),
        ({"input_ids": tensor(4, 128), "labels": tensor(4)}, 4),
        (((tensor(8, 3), tensor(8, 5)), tensor(8)), 8),
        (({"a": tensor(6, 2), "b": tensor(6)}, tensor(6)), 6),
        ({"text": ["a", "b", "c"], "label": tensor(3)}, 3),
        ((tensor(5, 3), ["one", "two", "three", "four", "five"]), 5),
        ((tuple(tensor(3, 64, 64 + i) for i in range(12)), tuple({"boxes": tensor(i, 4)} for i in range(12))), 12),
        ((tuple(tensor(3, 64, 64) for _ in range(40)), tuple({"boxes": tensor(2, 4)} for _ in range(40))), 40),
    ],
)
def test_what_all_parts_have_in_common_is_the_number_of_samples(batch: Any, size: int) -> None:
    assert num_samples(batch) == size


@pytest.mark.parametrize(
    "batch",
    [
        (tensor(12), 3),  # one sample: a vector and its label
        (tensor(12), tensor()),
        (tensor(3, 32, 32), tensor(10)),
        (tensor(50, 8, 16), tensor(8)),  # the sequence first
        [tensor(1, 4) for _ in range(2000)],
        [{"image": tensor(3, 8)} for _ in range(4)],  # samples as they are
        [(tensor(3, 8), {"boxes": tensor(2)}) for _ in range(4)],
        [(tensor(3, 8), 1) for _ in range(4)],
        (1, 2),
        (),
        {},
        None,
        "text",
        object(),
        Raising(),
        (Raising(), tensor(8)),
        Lazy(),
        {"input_ids": Raising()},
    ],
)
def test_what_is_not_plain_is_not_counted(batch: Any) -> None:
    assert num_samples(batch) is None


def test_a_batch_that_contains_itself_is_no_trouble() -> None:
    batch: list[Any] = [tensor(4)]
    batch.append(batch)

    assert num_samples(batch) in {4, None}


class Failing(dict[str, Any]):
    def get(self, *_: Any) -> Any:
        message = "closed"
        raise OSError(message)


def test_tokens_that_cannot_be_asked_for_are_not_counted() -> None:
    assert num_tokens(Failing()) is None
    assert num_tokens({"input_ids": SimpleNamespace(numel=lambda: 512)}) == 512
