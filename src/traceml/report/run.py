"""Opens a run by its folder or its summary: the one door of every face, with three questions."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Iterator, Optional, Sequence, Union

from traceml.errors import RunError
from traceml.report.build import build_report
from traceml.report.files import FILE, read_summary
from traceml.report.folder import DATABASE, Home, home_of
from traceml.report.live import age_s, refreshed
from traceml.report.output import Lines, Mark, Printed, ranks_with_output, read_output, read_printed
from traceml.report.series import NUM_POINTS, Series, read_series
from traceml.schema.current import Current
from traceml.store.reader import StoreReader
from traceml.wire import manifest as manifests

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.schema.records import Manifest

Window = tuple[int, int]
#: What a summary may have that a whole database makes good, in words.
_REBUILT: Final = {"damaged-summary": "is damaged", "no-summary": "cannot be read"}


def open_run(path: Union[Path, str]) -> Run:
    """The run in a folder, or the one a `final_summary.json` tells of.

    Args:
        path: A run folder (also one that holds nothing but a summary), or a `final_summary.json`.

    Raises:
        RunError: `no-run`, `damaged-run`, `run-too-new`; of a summary alone also those of `read_summary`.
    """
    path = Path(path)
    if path.is_dir():
        has_manifest = (path / manifests.FILE).exists()
        if not has_manifest and not (path / FILE).exists():
            held = f"it holds neither {manifests.FILE} nor {FILE}"
            message = f"No run at '{path}': {held}. Give the folder that `traceml run` printed."
            raise RunError(message, slug="no-run")
        if has_manifest:
            return Run(path, manifests.read_manifest(path))
        path = path / FILE
    elif path.name == FILE and (path.parent / manifests.FILE).exists() and path.exists():
        return Run(path.parent, manifests.read_manifest(path.parent))
    elif not path.exists():
        raise RunError(f"No run at '{path}'. Give the folder that `traceml run` printed.", slug="no-run")
    return Run(path.parent, None, read_summary(path))


class Run:
    """A run, finished or going on.

    Args:
        folder: The run folder.
        manifest: What was known when it started; None when there is nothing but a summary.
        summary: The report, when there is nothing else.
    """

    def __init__(self, folder: Path, manifest: Optional[Manifest], summary: Optional[Report] = None) -> None:
        self.folder = folder
        self._manifest = manifest
        self._summary = summary

    @property
    def name(self) -> str:
        """The run's name."""
        if self._manifest is not None:
            return self._manifest.name
        assert self._summary is not None
        return self._summary.run.name

    @property
    def started_at(self) -> Optional[float]:
        """Wall clock in seconds when the run was made; None where only a summary tells of it."""
        return self._manifest.created_at if self._manifest is not None else None

    @property
    def is_running(self) -> bool:
        """Whether the run's collector, or before one its launcher, lives and has not written the end."""
        return self._manifest is not None and home_of(self.folder, self._manifest).is_running

    @property
    def has_summary(self) -> bool:
        """Whether the final summary was written."""
        return self._summary is not None or (self._home().folder / FILE).exists()

    def report(self, window: Optional[Window] = None) -> Report:
        """The verdict and all numbers of the whole run, or of a range of steps.

        Of a finished run it is the summary that was written; else, or of a range, it is built from the database.

        Args:
            window: First and last step.

        Raises:
            RunError: `no-database`, `foreign-database`, `database-too-new`, `damaged-database`; the slugs of
                `read_summary`; `summary-only` for a range of a run without a database.
        """
        if self._manifest is None:
            if window is not None:
                raise self._summary_only("a range of steps")
            assert self._summary is not None
            return self._summary
        home = self._home()
        notes = list(home.notes)
        if window is None and not home.is_running and (home.folder / FILE).exists():
            try:
                return _placed(read_summary(home.folder / FILE), home)
            except RunError as error:
                if error.slug not in _REBUILT or not (home.folder / DATABASE).exists():
                    raise
                notes.append(f"{FILE} {_REBUILT[error.slug]}; this was built again from the database")
        with self._reader(home) as reader:
            return build_report(
                reader,
                self._manifest,
                window=window,
                now_wall=time.time(),
                now_ns=time.perf_counter_ns(),
                is_running=home.is_running,
                folder=str(home.folder),
                notes=notes,
            )

    def refreshed(self, report: Report) -> Report:
        """An earlier report of this run with the step, the time and what is now of this moment; its figures stay.

        For a face that draws oftener than a report is worth building. A run that is over is left as it was.

        Raises:
            RunError: What the database raises.
        """
        if self._manifest is None or report.run.status != "running":
            return report
        home = self._home()
        if not home.is_running:
            return report
        with self._reader(home) as reader:
            current = Current(tuple(reader.live()), tuple(reader.states()))
        now_ns = time.perf_counter_ns()
        found = refreshed(report, current, now_wall=time.time(), now_ns=now_ns)
        age = age_s(now_ns, max((slot.read_ns for slot in current.slots), default=now_ns))
        live = {**(report.run.live or {}), **found.run.live} if found.run.live else None  # host and devices stay
        return replace(found, run=replace(found.run, data_age_s=age, live=live))

    def series(
        self,
        metric: str,
        ranks: Optional[Sequence[int]] = None,
        window: Optional[Window] = None,
        num_points: int = NUM_POINTS,
    ) -> Series:
        """A metric over the steps: minimum, mean and maximum a point.

        Args:
            metric: `period`, a phase's name or `region:<name>` (ms); `own` (a rank's work between two synchronisations:
                with all ranks the rows of a heat map), `gain`, `lost` and `transfer` (those two of all ranks, under
                rank 0; ms); `allocated`, `reserved`, `peak`, `rss` (bytes); `cpu` (percent of one core).
            ranks: Those to speak of; None: all.
            window: First and last step; None: all.
            num_points: At most about so many points a rank, from the coarsest level that suffices.

        Raises:
            UsageError: `unknown-metric`.
            RunError: `summary-only`, or what the database raises.
        """
        if self._manifest is None:
            raise self._summary_only("series")
        with self._reader(self._home()) as reader:
            return read_series(reader, metric, ranks=ranks, window=window, num_points=num_points)

    def output(self, rank: int = 0, window: Optional[Window] = None, search: Optional[str] = None) -> Lines:
        """What a rank printed, when the run captured it (`--save-output`).

        Args:
            rank: Whose output.
            window: First and last line, counted from 1; None: all.
            search: Only lines that hold this text, whatever the case.

        Raises:
            RunError: `summary-only`, or `no-output`.
        """
        if self._manifest is None:
            raise self._summary_only("output")
        return read_output(self._home().folder, rank=rank, window=window, search=search)

    def printed(self, rank: int = 0, since: Optional[Mark] = None, max_bytes: int = 1 << 18) -> Printed:
        """What a rank printed since a mark, byte for byte, for a face that follows it; at most the last `max_bytes`.

        Raises:
            RunError: `summary-only`, or `no-output`.
        """
        if self._manifest is None:
            raise self._summary_only("output")
        return read_printed(self._home().folder, rank=rank, since=since, max_bytes=max_bytes)

    @property
    def ranks_with_output(self) -> tuple[int, ...]:
        """The ranks whose output the run captured."""
        return ranks_with_output(self._home().folder)

    def _home(self) -> Home:
        return home_of(self.folder, self._manifest) if self._manifest is not None else Home(self.folder)

    def _summary_only(self, what: str) -> RunError:
        message = f"'{self.folder / FILE}' is a summary alone: {what} needs the run folder with its database."
        return RunError(message, slug="summary-only")

    @contextmanager
    def _reader(self, home: Home) -> Iterator[StoreReader]:
        if home.is_running and not (home.folder / DATABASE).exists():
            message = f"Run '{self.folder}' runs, and nothing of it is stored yet. Ask again in a few seconds."
            raise RunError(message, slug="no-database")
        reader = StoreReader(home.folder / DATABASE)
        try:
            with reader.snapshot():
                yield reader
        finally:
            reader.close()


def _placed(report: Report, home: Home) -> Report:
    """The report with the folder it was found in: a run folder may have been moved since."""
    notes = tuple(dict.fromkeys((*report.coverage.notes, *home.notes)))
    return replace(
        report,
        run=replace(report.run, folder=str(home.folder)),
        coverage=replace(report.coverage, notes=notes),
    )
