"""What users import: init, trace_step, region, count, summary, final_summary, shutdown."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Optional

from traceml import part as _part
from traceml.errors import StateError, TraceMLError, UsageError
from traceml.recorder import step as _step
from traceml.recorder.guard import say
from traceml.recorder.step import count, region, trace_step
from traceml.settings import RUN_VARIABLE, Settings, resolve

__all__ = ["count", "final_summary", "init", "region", "shutdown", "summary", "trace_step"]

_PATIENCE_S = 2.0
_MODES = ("auto",)


def init(mode: str = "auto", *, total_steps: Optional[int] = None) -> None:
    """Begins recording this process's training. Call it once, before the loop; a second equal call does nothing.

    Under `traceml run` the run's folder exists already; with plain `python` this makes one under `logs/` and starts the
    collector beside the training. `TRACEML_DISABLED=1` makes this and everything after it inert.

    Args:
        mode: "auto": every hook.
        total_steps: How many steps the training will take, for the time left.

    Raises:
        UsageError: `bad-mode`: mode is unknown.
        StateError: `second-init`: the run was begun with other arguments.
        SettingsError: `bad-setting`: a TRACEML_ variable or [tool.traceml] holds a value that cannot be used.
    """
    if mode not in _MODES:
        raise UsageError(f"init(mode={mode!r}) is not known. Use mode='auto'.", slug="bad-mode")
    if total_steps is not None and (not isinstance(total_steps, int) or total_steps < 1):
        raise UsageError(f"init(total_steps={total_steps!r}) is not a whole number of at least 1.", slug="bad-argument")
    arguments = {"mode": mode, "total_steps": total_steps}
    found = _part.current
    if found is not None and found.session.is_open and found.arguments:
        if found.arguments != arguments:
            first = ", ".join(f"{key}={value!r}" for key, value in found.arguments.items())
            second = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            hint = "one run has one set of arguments. Drop the second call, or call shutdown() first."
            raise StateError(f"init({second}) after init({first}): {hint}", slug="second-init")
        return
    settings = resolve(init={"total_steps": total_steps})
    why_not = _why_not(settings)
    if why_not is not None:
        _step.begin_session(None, why_not or None)
        return
    try:
        _part.begin(settings, arguments)
    except (TraceMLError, OSError, ImportError) as error:
        _step.begin_session(None)
        say(f"this run is not recorded: {error}")


def _why_not(settings: Settings) -> Optional[str]:
    """Why nothing is recorded here: a sentence to be said at the first step, '' to stay silent, None to record."""
    if settings.disabled:
        return ""
    if os.name != "posix":
        say("recording works on Linux and macOS; here the script runs untraced.")
        return ""
    if _part.is_helper() and not _part.is_armed:
        return ""  # a worker of the training, not the training
    if RUN_VARIABLE not in os.environ and "PYTEST_CURRENT_TEST" in os.environ and not settings.in_pytest:
        return ""
    return None


def shutdown() -> None:
    """Ends the recording: every hook comes off and the summary is written; training may go on untouched.

    A later `init()` begins a new run.
    """
    _part.end("shutdown")


def final_summary() -> Optional[dict[str, Any]]:
    """The whole report as of now, as in `final_summary.json`; None when nothing is recorded.

    Computes nothing here: it asks the collector and waits at most 2 s. `age_s` says how old the answer is, in seconds;
    0 when it covers the last finished step.
    """
    return _asked("report")


def summary() -> Optional[dict[str, Any]]:
    """The report as a flat dict of numbers and words, for trackers; None when nothing is recorded."""
    return _asked("summary")


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
