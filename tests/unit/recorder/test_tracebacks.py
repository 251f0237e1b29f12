"""Shows that our frames leave tracebacks where somebody further out can take them out."""

from __future__ import annotations

import sys
import traceback
from typing import Any, Callable

import pytest

from traceml.recorder import tracebacks


def ours(call: Callable[[], Any]) -> Callable[[], Any]:
    """A function of ours, as far as its code says, that calls the user's."""
    name = tracebacks.__file__
    space: dict[str, Any] = {"call": call}
    code = compile("def hook():\n    return call()\n", name, "exec")
    exec(code, space)
    made: Callable[[], Any] = space["hook"]
    return made


def user() -> None:
    raise ValueError("the user's")


def raised_through(*hooks: Callable[[Callable[[], Any]], Callable[[], Any]]) -> ValueError:
    call: Callable[[], Any] = user
    for hook in hooks:
        call = hook(call)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # made above
        call()
    return caught.value


def names(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]


def test_frames_of_ours_are_taken_out_and_the_users_stay() -> None:
    error = raised_through(ours, ours)
    assert names(error) == ["hook", "hook", "user"]

    tracebacks.strip(error)

    assert names(error) == ["user"]


def test_the_exceptions_it_came_from_are_cleared_too_even_in_a_circle() -> None:
    first, second = raised_through(ours), raised_through(ours)
    first.__cause__, second.__context__ = second, first

    tracebacks.strip(first)

    assert names(first) == names(second) == ["user"]


def test_an_exception_that_nobody_catches_is_shown_without_us_by_the_hook_that_stood_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[list[str]] = []
    monkeypatch.setattr(sys, "excepthook", lambda _kind, error, _trace: shown.append(names(error)))
    theirs, error = sys.excepthook, raised_through(ours)
    tracebacks.conceal()
    tracebacks.conceal()

    sys.excepthook(type(error), error, error.__traceback__)

    assert shown == [["user"]]
    assert sys.excepthook is theirs


def test_a_hook_that_the_user_sets_later_stays() -> None:
    before = sys.excepthook
    tracebacks.conceal()
    theirs = sys.excepthook = lambda *_: None
    tracebacks.restore()

    assert sys.excepthook is theirs
    sys.excepthook = before
