"""Looks at a run for the full screen: a report and its curves, no oftener than their cost allows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Callable, Final, Mapping, Optional

from traceml.errors import RunError
from traceml.schema import phases

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.report.run import Run, Window
    from traceml.report.series import Point

PERIOD: Final = "period"
OWN: Final = "own"
LAST_STEPS: Final = 300
_NUM_CELLS: Final = 100  # of a row of the heat map
_MAX_SHARE: Final = 0.008  # of a core, for looking
_GLANCE_SHARE: Final = 0.003  # likewise, for what changes most
_LEAST_S: Final = 1.0  # between two looks at a run that goes on
_PATIENT_S: Final = 5.0  # between two looks when the last one failed
_ACCELERATORS: Final = frozenset({"cuda", "mps"})

Points = tuple["Point", ...]


@dataclass(frozen=True)
class Asked:
    """What the face shows: a window of the steps (None: the newest), and whether the curves are of the whole run."""

    window: Optional[Window] = None
    is_whole: bool = False
    num_points: int = 200


@dataclass(frozen=True)
class Scene:
    """What was seen at one moment."""

    asked: Asked
    report: Optional[Report] = None  # None: nothing was stored yet
    window: Optional[Window] = None  # the steps that the report is of; None: all
    rank: int = 0  # of the curves
    memory_metric: str = "rss"
    curves: Mapping[str, Points] = field(default_factory=dict)
    heat: Mapping[str, Mapping[int, Points]] = field(default_factory=dict)  # by metric and rank; with several ranks
    taken_s: float = 0.0  # time.monotonic()
    trouble: str = ""  # why nothing newer could be seen

    @property
    def is_running(self) -> bool:
        """Whether the run went on at that moment."""
        return self.report is None or self.report.run.status == "running"


class Watch:
    """A run under observation; what was seen keeps standing when nothing more can be.

    Args:
        run: The run.
        bring_home: Called once when the run is over without a summary: recovers what a crash left.
        clock: Seconds, steady.
        cost_clock: Seconds of CPU that a look took.
    """

    def __init__(
        self,
        run: Run,
        *,
        bring_home: Callable[[Run], object] = lambda _run: None,
        clock: Callable[[], float] = time.monotonic,
        cost_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.run = run
        self._bring_home: Optional[Callable[[Run], object]] = bring_home
        self._clock, self._cost_clock = clock, cost_clock
        self._due_s = self._glance_due_s = 0.0
        self._scene: Optional[Scene] = None
        self._looked: Optional[Report] = None  # of the last look, as it was then

    def is_due(self, asked: Asked) -> bool:
        """Whether to look now: something else is asked for, or the run goes on and it is time."""
        if self._scene is None or self._scene.asked != asked:
            return True
        is_open = asked.window is None and (self._scene.is_running or bool(self._scene.trouble))
        return is_open and self._clock() >= self._due_s

    def may_glance(self, asked: Asked) -> bool:
        """Whether step, time and what is now are worth renewing, between two looks."""
        is_live = self._scene is not None and self._scene.is_running and self._scene.report is not None
        return is_live and asked.window is None and self._clock() >= self._glance_due_s

    def glance(self) -> Scene:
        """The last look with what has changed most since: step, time, what is now."""
        assert self._scene is not None
        assert self._scene.report is not None
        started = self._cost_clock()
        try:
            assert self._looked is not None
            report = self.run.refreshed(self._looked)
            self._scene = replace(self._scene, report=report, taken_s=self._clock())
        except (RunError, OSError):
            pass  # the next look says why
        cost_s = self._cost_clock() - started
        self._glance_due_s = self._clock() + max(_LEAST_S, cost_s / _GLANCE_SHARE)
        return self._scene

    def look(self, asked: Asked) -> Scene:
        """The run as it is now; when it cannot be read, as it was, with the reason."""
        started = self._cost_clock()
        try:
            scene = self._see(asked)
            least_s = _LEAST_S
        except (RunError, OSError) as error:
            scene = self._held(asked, error)
            least_s = _PATIENT_S if scene.report else _LEAST_S
        self._due_s = self._clock() + max(least_s, (self._cost_clock() - started) / _MAX_SHARE)
        self._scene = scene
        return scene

    def _see(self, asked: Asked) -> Scene:
        if self._bring_home is not None and not self.run.is_running:
            bring_home, self._bring_home = self._bring_home, None
            if not self.run.has_summary:
                bring_home(self.run)
        report = self.run.report(asked.window)
        self._looked = report
        rank = report.step_time.ranks.median
        scene = Scene(
            asked=asked,
            report=report,
            window=asked.window,
            rank=0 if rank is None else rank,
            memory_metric="allocated" if report.step_memory.source in _ACCELERATORS else "rss",
            taken_s=self._clock(),
        )
        try:
            return self._with_series(scene, report)
        except RunError:  # a summary alone, or a database that is gone: the curves are missing, not the rest
            before = self._scene.curves if self._scene and self._scene.asked == asked else {}
            return replace(scene, curves=before)

    def _with_series(self, scene: Scene, report: Report) -> Scene:
        window, points = _window_of(scene.asked, report), scene.asked.num_points

        def points_of(metric: str) -> Points:
            return self.run.series(metric, ranks=[scene.rank], window=window, num_points=points).points.get(
                scene.rank, ()
            )

        metrics = (PERIOD, phases.INPUT, scene.memory_metric)
        curves = {metric: points_of(metric) for metric in metrics}
        heat: dict[str, Mapping[int, Points]] = {}
        if report.run.world_size > 1:
            for metric in (OWN, phases.INPUT):
                found = self.run.series(metric, window=window, num_points=_NUM_CELLS).points
                if any(found.values()):
                    heat[metric] = found
        return replace(scene, curves={metric: row for metric, row in curves.items() if row}, heat=heat)

    def _held(self, asked: Asked, error: Exception) -> Scene:
        trouble = str(error) if isinstance(error, RunError) else f"The run cannot be read: {error}."
        if self._scene is not None and self._scene.report is not None:
            return replace(self._scene, asked=asked, trouble=trouble)
        return Scene(asked, taken_s=self._clock(), trouble=trouble)


def _window_of(asked: Asked, report: Report) -> Optional[Window]:
    """The steps of the curves: the window that is looked at, the whole run, or the last 300 of it."""
    last = report.run.last_step
    if asked.window is not None or asked.is_whole or last is None:
        return asked.window
    return max(report.run.first_step or 1, last - LAST_STEPS + 1), last
