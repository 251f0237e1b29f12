"""What users import: init, trace_step, region, count, the wraps, summary, final_summary, report, shutdown."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Mapping, Optional

from traceml import part as _part
from traceml.errors import SettingsError, StateError, TraceMLError, UsageError
from traceml.recorder import step as _step
from traceml.recorder.guard import say
from traceml.recorder.interrupts import let_pass
from traceml.recorder.step import count, region, trace_step
from traceml.schema.phases import BACKWARD, FORWARD, H2D, INPUT, OPTIMIZER
from traceml.settings import RUN_VARIABLE, Settings, resolve
from traceml.shown import Shown

__all__ = [
    "count",
    "final_summary",
    "init",
    "region",
    "report",
    "shutdown",
    "summary",
    "trace_step",
    "wrap_backward",
    "wrap_dataloader",
    "wrap_forward",
    "wrap_h2d",
    "wrap_optimizer",
]

_PATIENCE_S = 2.0
_PYTEST = ("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "PYTEST_VERSION")  # in a test, and while they are collected
_MODES = ("auto", "manual", "selective")
_PATCHES = {
    "patch_dataloader": INPUT,
    "patch_h2d": H2D,
    "patch_forward": FORWARD,
    "patch_backward": BACKWARD,
    "patch_optimizer": OPTIMIZER,
}


def init(
    mode: str = "auto",
    *,
    total_steps: Optional[int] = None,
    patch_dataloader: bool = False,
    patch_h2d: bool = False,
    patch_forward: bool = False,
    patch_backward: bool = False,
    patch_optimizer: bool = False,
) -> None:
    """Begins recording this process's training. Call it once, before the loop; a second equal call does nothing.

    Under `traceml run` the run's folder exists already; with plain `python` this makes one under `logs/` and starts the
    collector beside the training. `TRACEML_DISABLED=1` makes this and everything after it inert.
    Under pytest nothing is recorded, unless `traceml run` or `TRACEML_IN_PYTEST=1` asks for it.

    Args:
        mode: "auto": every hook. "manual": none; steps, regions and what is given to `wrap_dataloader`, `wrap_h2d`,
            `wrap_forward`, `wrap_backward` and `wrap_optimizer` is recorded. "selective": as manual, and the hooks
            asked for.
        total_steps: How many steps the training will take, for the time left.
        patch_dataloader: With "selective": every DataLoader, as `input`.
        patch_h2d: Likewise every copy of a tensor from the host to a device, as `h2d`, once there is one in use.
        patch_forward: Likewise the models given to `trace_step`, as `forward` and `eval`.
        patch_backward: Likewise every backward.
        patch_optimizer: Likewise every torch optimizer.

    Raises:
        UsageError: `bad-mode`: mode is unknown. `bad-argument`: total_steps is no number of steps, or a patch_ argument
            was given to another mode than "selective".
        StateError: `second-init`: the run was begun with other arguments.
    """
    if mode not in _MODES:
        raise UsageError(f"init(mode={mode!r}) is not known. Use one of {', '.join(_MODES)}.", slug="bad-mode")
    if total_steps is not None and (not isinstance(total_steps, int) or total_steps < 1):
        raise UsageError(f"init(total_steps={total_steps!r}) is not a whole number of at least 1.", slug="bad-argument")
    patches = {
        "patch_dataloader": patch_dataloader,
        "patch_h2d": patch_h2d,
        "patch_forward": patch_forward,
        "patch_backward": patch_backward,
        "patch_optimizer": patch_optimizer,
    }
    asked = [name for name, is_asked in patches.items() if is_asked]
    if asked and mode != "selective":
        raise UsageError(
            f"init(mode={mode!r}) does not take {asked[0]}. Use mode='selective' with it.", slug="bad-argument"
        )
    arguments = {"mode": mode, "total_steps": total_steps, **dict.fromkeys(asked, True)}
    found = _part.current
    if found is not None and found.session.is_open and found.arguments:
        if found.arguments != arguments:
            first = ", ".join(f"{key}={value!r}" for key, value in found.arguments.items())
            second = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            hint = "one run has one set of arguments. Drop the second call, or call shutdown() first."
            raise StateError(f"init({second}) after init({first}): {hint}", slug="second-init")
        return
    try:
        settings = resolve(init={"total_steps": total_steps})
    except SettingsError as error:  # not the script's mistake: a variable, or a file, that it may know nothing of
        if not _part.is_preparing():  # there the process that spawned this one has said it
            say(f"this run is not recorded: {error}")
        _step.begin_session(None)
        return
    why_not = _why_not(settings)
    if why_not is not None:
        _step.begin_session(None, why_not or None)
        return
    try:
        _part.begin(settings, arguments, only=_only(arguments))
    except Exception as error:  # noqa: BLE001  # whatever it is, the training is to go on
        _step.begin_session(None)
        let_pass(error)
        say(f"this run is not recorded: {error}")


def _only(arguments: Mapping[str, Any]) -> Optional[tuple[str, ...]]:
    """The phases whose hooks were asked for; None: all."""
    if arguments["mode"] == "auto":
        return None
    return tuple(phase for name, phase in _PATCHES.items() if name in arguments)


def _why_not(settings: Settings) -> Optional[str]:
    """Why nothing is recorded here: a sentence to be said at the first step, '' to stay silent, None to record."""
    if settings.disabled:
        return ""
    if os.name != "posix":
        if not _part.is_preparing():
            say("recording works on Linux and macOS; here the script runs untraced.")
        return ""
    if _part.is_helper() and not _part.is_preparing() and not _part.is_armed:
        return ""  # a worker of the training, not the training
    if RUN_VARIABLE not in os.environ and not settings.in_pytest and any(name in os.environ for name in _PYTEST):
        return ""  # the tests of whoever trains: nobody asked for a folder a test
    return None


def shutdown() -> None:
    """Ends the recording: every hook comes off and the summary is written; training may go on untouched.

    A later `init()` begins a new run.
    """
    _part.end("shutdown")


def wrap_dataloader(batches: Any) -> Any:
    """Makes a loader that TraceML does not know be seen: waiting for its next batch is `input`.

    Args:
        batches: Any iterable of batches: another library's loader, a generator, the queue of a prefetching thread.

    Returns:
        What to iterate over instead. It has the attributes, the length and the class of what was given; a DataLoader
        that is watched anyway is returned as it is.
    """
    return batches if _is_disabled() else _wraps().wrap_dataloader(batches)


def wrap_h2d(batch: Any) -> Any:
    """Makes a copy to the device that TraceML does not see be `h2d`: `batch = traceml.wrap_h2d(batch).to(device)`.

    Args:
        batch: What has a `to` or a `cuda`; or a function that copies a batch.

    Returns:
        What has the timed `to` and `cuda`, which give what they gave before; for a function what to call instead.
    """
    return batch if _is_disabled() else _wraps().wrap_h2d(batch)


def wrap_forward(model: Any) -> Any:
    """Makes calls of a model be `forward`, whether or not it is given to `trace_step`.

    Args:
        model: A module, or any callable that computes the loss.

    Returns:
        The module itself; for another callable what to call instead.
    """
    return model if _is_disabled() else _wraps().wrap_forward(model)


def wrap_backward(loss: Any) -> Any:
    """Makes a backward that TraceML does not see be `backward`: `traceml.wrap_backward(loss).backward()`.

    Args:
        loss: A loss; an engine with a `backward` of its own; or a function that runs the backward.

    Returns:
        What has the timed `backward`; for a function what to call instead.
    """
    return _wraps().wrap_backward(loss)


def wrap_optimizer(optimizer: Any) -> Any:
    """Makes an optimizer that does not derive from torch's be seen: `optimizer = traceml.wrap_optimizer(optimizer)`.

    Returns:
        What to call `step()` on instead; one of torch's own is returned as it is.
    """
    return optimizer if _is_disabled() else _wraps().wrap_optimizer(optimizer)


def _wraps() -> Any:
    from traceml.recorder import wraps  # noqa: PLC0415  # with its hooks: not before it is needed

    return wraps


def _is_disabled() -> bool:
    """Whether TRACEML_DISABLED, or a setting that cannot be read (init() says which), keeps everything inert."""
    try:
        return _step.current is None and resolve().disabled
    except TraceMLError:
        return False


def final_summary() -> Optional[dict[str, Any]]:
    """The whole report as of now, as in `final_summary.json`; None when nothing is recorded.

    Computes nothing here: it asks the collector and waits at most 2 s. `age_s` says how old the answer is, in seconds;
    0 when it covers the last finished step.
    """
    return _asked("report")


def summary() -> Optional[dict[str, Any]]:
    """The report as a flat dict of numbers and words, for trackers; None when nothing is recorded."""
    return _asked("summary")


def report() -> Shown:
    """The card of the run so far, or of the one that has ended: the last line of a notebook's cell shows it.

    Computes nothing here: it asks the collector and waits at most 2 s. `print` shows the same text.
    """
    if _part.current is None:
        return Shown("TraceML: nothing is recorded. Call traceml.init() before the loop.")
    found = _asked("card")
    if found is None:
        return Shown("TraceML: no report yet. Ask again in a moment.")
    age = f"\n      ({found['age_s']:.0f} s old: the collector did not answer)" if found["age_s"] >= 1 else ""
    return Shown(found["text"].rstrip("\n") + age)


def _asked(which: str) -> Optional[dict[str, Any]]:
    run = _part.current
    if run is None:
        return None
    try:
        is_fresh = run.session.ask(patience_s=_PATIENCE_S) if run.session.is_open else True
        path = run.ring_dir / f"report-{os.getpid()}.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        answer: dict[str, Any] = found[which]
        answer["age_s"] = 0.0 if is_fresh else round(time.time() - path.stat().st_mtime, 3)
    except (OSError, ValueError, KeyError):
        return None
    return answer
