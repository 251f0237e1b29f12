"""Makes what the full screen shows: scenes of runs in a state, and real run folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from tests.unit.report.store_fakes import COMPLETED, MANIFEST, SECOND, state_of, step_ms
from tests.unit.views.terminal.panels import seen, series_of
from traceml.report.folder import DATABASE
from traceml.report.series import Point
from traceml.schema.records import HostSample, LiveSlot, MemoryReading, RunEnd, StepRecord
from traceml.store.writer import StoreWriter
from traceml.views.terminal import sight
from traceml.views.terminal.follow import Follower
from traceml.views.terminal.head import Moment
from traceml.views.terminal.scene import Asked, Scene
from traceml.views.text.columns import width_of
from traceml.wire.manifest import write_manifest

SIZES = ((80, 24), (120, 40), (40, 20), (200, 50))
NOW_S = 1000.0


def scene_of(state: str, **changes: Any) -> Scene:
    """A run in one of the panel's states, seen just now."""
    report, _ = seen(state)
    curves = {metric: next(iter(found.points.values())) for metric, found in series_of(report).items()}
    heat = {}
    if report.run.world_size > 1:
        heat = {"own": {rank: _heat(rank) for rank in range(4)}, "input": {rank: _heat(rank) for rank in range(4)}}
    scene = Scene(Asked(), report, memory_metric="allocated", curves=curves, heat=heat, taken_s=NOW_S)
    return replace(scene, **changes)


def texts(shown: sight.Sight, width: int, height: int) -> list[str]:
    """The rows as text; each is checked to be no wider than the screen."""
    rows = sight.screen(shown, width, height)
    found = ["".join(text for text, _ in row) for row in rows]
    assert len(found) == height
    own = [text for text, row in zip(found, rows) if isinstance(row, list)]  # the output is cut by the canvas
    assert max(map(width_of, own)) <= width, max(own, key=width_of)
    return found


def sight_of(scene: Scene, **changes: Any) -> sight.Sight:
    """The first page at the scene's own moment."""
    return replace(sight.Sight(scene, "vit-small", Moment(now_s=scene.taken_s)), **changes)


def words(rows: list[str]) -> str:
    """All text in one line, as it reads."""
    return " ".join(" ".join(rows).split())


def run_folder(
    path: Path,
    *,
    num_steps: int = 400,
    num_ranks: int = 1,
    end: Optional[RunEnd] = COMPLETED,
    name: str = "vit-small",
    log: bytes = b"",
) -> Path:
    """A run folder: input-bound first, compute-bound in its second half."""
    path.mkdir(parents=True, exist_ok=True)
    write_manifest(path, replace(MANIFEST, name=name))
    writer = StoreWriter(path / DATABASE)
    for rank in range(num_ranks):
        state = replace(state_of(rank, world_size=num_ranks), first_step=1, last_step=num_steps)
        memory = [MemoryReading(rank, n, n, "rss", 3_000_000_000) for n in range(1, num_steps + 1, 20)]
        writer.append(steps=_steps(num_steps, rank), states=[state], memory=memory)
    writer.append(
        live=[LiveSlot(0, num_steps, "input", SECOND, SECOND, alive=True)], host=[HostSample(SECOND, cpu_percent=38.0)]
    )
    if end is not None:
        writer.put_end(end)
    writer.close()
    if log:
        (path / "rank-0.log").write_bytes(log)
    return path


def _steps(num_steps: int, rank: int) -> list[StepRecord]:
    half = num_steps // 2
    return [
        step_ms(n, rank=rank, input=30 if n <= half else 0.1, forward=10 + n % 3, backward=20)
        for n in range(1, num_steps + 1)
    ]


def _heat(rank: int) -> tuple[Point, ...]:
    value = 61.0 if rank == 3 else 5.0
    return tuple(Point(step, step + 9, value, value, value) for step in range(1, 300, 10))


def follower(tmp_path: Path, log: bytes) -> Follower:
    """Follows a log of one rank."""
    from traceml.report.run import open_run

    found = Follower(open_run(run_folder(tmp_path / "run", num_steps=10, log=log)))
    found.poll()
    return found
