"""Is the collector process of a run: collects, answers the ranks, writes the summary, and is gone."""

from __future__ import annotations

import gc
import json
import os
import signal
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Iterable, Iterator, Optional, Sequence

from traceml.collect.callbacks import Callbacks
from traceml.collect.collector import Collector
from traceml.collect.devices import Nvml
from traceml.collect.keeping import Keeping
from traceml.collect.launcher import Launcher
from traceml.collect.lock import take_lock
from traceml.collect.recover import database_home, earlier_notes, max_bytes, orphans, recover
from traceml.collect.sampling import Sampling
from traceml.errors import RunError
from traceml.launch.output import log_name, shorten
from traceml.launch.place import ring_roots
from traceml.report.build import build_report
from traceml.report.files import CARD_FILE, write_summary
from traceml.report.flat import flat_summary
from traceml.report.run import open_run
from traceml.report.series import Series, read_series
from traceml.schema.struct import to_plain
from traceml.store.reader import StoreReader
from traceml.views.text.card import card
from traceml.views.text.line import progress_line, verdict_line
from traceml.wire import panel as wording
from traceml.wire.manifest import read_manifest, write_private
from traceml.wire.node import DONE, RUNNING, Node, write_node
from traceml.wire.ringfolder import CHECK, is_ring_folder, remove_ring_folder

if TYPE_CHECKING:
    from traceml.cli.drawing import Drawing
    from traceml.launch.terminal.drain import Drain
    from traceml.report.contract import Report
    from traceml.schema.current import Current
    from traceml.schema.panel import PanelRequest
    from traceml.schema.records import Manifest

_MISUSE: Final = 2
_EXIT_S: Final = 20.0  # what the interpreter's own end may take, behind its goodbye
_REAPED_S: Final = 5.0  # until the rank's parent has asked for its exit status
_PATIENCE_S: Final = 0.8  # for a rank that waits for the summary at its exit
_NAME: Final = "TraceML: "
_GARBAGE: Final = 50_000  # objects between two collections: some 2,000 steps
_LINE_COLUMNS: Final = 160  # of the one line that plain python gets: a whole sentence
_IGNORED: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGQUIT")


def main(argv: Sequence[str]) -> int:
    """`python -m traceml.cli.node --run FOLDER`: collects the run until it is over.

    stdin is a pipe from the launcher, or anything else when there is none. Signals that end a job are ignored: the
    summary is written when the ranks have ended, however they ended.

    Returns:
        0 when the summary is written, or another collector has this run; 2 for a wrong command line.
    """
    if len(argv) != 2 or argv[0] != "--run":  # noqa: PLR2004  # an option and its value
        print("Usage: python -m traceml.cli.node --run FOLDER", file=sys.stderr)
        return _MISUSE
    for name in _IGNORED:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    folder = Path(argv[1])
    manifest = read_manifest(folder)
    if not is_ring_folder(Path(manifest.ring_dir)):
        print(f"'{manifest.ring_dir}' is no ring folder of TraceML's.", file=sys.stderr)
        return _MISUSE
    lock = take_lock(Path(manifest.ring_dir))
    if lock is None:
        return 0
    _collect_seldom()
    try:
        _Node(folder, manifest).work()
    finally:
        os.close(lock)
    return 0


def _collect_seldom() -> None:
    """Records hold no cycles: looking for some every 700 of them was a seventh of all that a step costs here."""
    gc.freeze()
    gc.set_threshold(_GARBAGE, 20, 20)


class _Node:
    """The composition: a collector, its database, and the reports that are made of it."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._ring_dir = Path(manifest.ring_dir)
        self._notes = earlier_notes(self._ring_dir)
        self._orphans: Optional[Iterator[Path]] = None
        self._verdict: Optional[str] = None
        self._num_ranks = 0
        self._launcher = Launcher(_pipe())
        self._drain: Optional[Drain] = None
        self._collector: Collector
        self._drawing: Optional[Drawing] = None
        place = database_home(folder, self._ring_dir)  # a collector before us may have moved it
        self._tell(RUNNING, place)
        self._keeping = Keeping(place, manifest, max_bytes=max_bytes(manifest), noted=self._note, home=folder)
        self._tell(RUNNING, self._keeping.folder)

    def work(self) -> None:
        launcher, sampling = self._launcher, Sampling(Nvml())
        callbacks = Callbacks(
            self._answer,
            self._note,
            line=self._line,
            panel=self._panel,
            is_quiet=self._quiet,
            spare=self._spare,
            orphaned=self._drain_terminal,
        )
        self._collector = Collector(self._manifest, self._keeping, launcher, sampling=sampling, callbacks=callbacks)
        self._collector.run()
        if self._drain is not None:
            self._drain.finish()
        self._num_ranks = len(self._collector.pids)
        self._summarize(is_running=False)
        if self._manifest.is_check:
            write_private(self._ring_dir / CHECK, self._check(is_running=False))
        for path in self._ring_dir.glob("*.ring"):
            path.unlink()
        self._tell(DONE, self._keeping.folder)
        # Whoever waits for us still reads what is in the folder. The launcher removes it, and so does a rank that
        # trains on after its shutdown(). One that is about to exit looks every 10 ms, and may take seconds to be gone.
        if launcher.is_there:
            return
        is_exiting = self._collector.ranks_exit
        have_left = self._collector.ranks_leave(_EXIT_S if is_exiting else _PATIENCE_S)
        if have_left:
            self._amend()
        elif not is_exiting:
            return
        remove_ring_folder(self._ring_dir)

    def _amend(self) -> None:
        """Writes the summary again, where the kernel told how a process ended that nobody else saw end."""
        until = time.monotonic() + _REAPED_S
        end = self._collector.late_end()
        while end is None and self._collector.may_end_late and time.monotonic() < until:
            time.sleep(0.05)
            end = self._collector.late_end()
        if end is None:
            return
        try:
            self._keeping.put_late_end(end)
        except RunError as error:
            self._note(f"How the script ended could not be stored: {error}")
            return
        self._summarize(is_running=False)

    def _report(self, *, is_running: bool) -> Report:
        reader = StoreReader(self._keeping.database)
        try:
            return build_report(
                reader,
                self._manifest,
                now_wall=time.time(),
                now_ns=time.perf_counter_ns(),
                is_running=is_running,
                folder=str(self._keeping.folder),
                notes=tuple(self._notes),
            )
        finally:
            reader.close()

    def _answer(self, pid: int) -> None:
        self._write_answers((pid,), self._report(is_running=True))

    def _drain_terminal(self) -> None:
        """The launcher was killed: now we are the script's terminal."""
        if self._launcher.terminal is not None:
            from traceml.launch.terminal.drain import Drain  # noqa: PLC0415  # seldom, and what is imported costs each run

            self._drain = Drain(self._launcher.terminal, self._folder / log_name(0))
            self._drain.start()

    def _line(self) -> None:
        """For the launcher, which holds the other end of our stdout."""
        text = progress_line(self._report(is_running=True)) + "\n"
        with suppress(OSError):  # it has just died
            os.write(1, text.encode(errors="backslashreplace"))

    def _panel(self, request: PanelRequest) -> None:
        """Likewise, and for its terminal."""
        if self._drawing is None:
            from traceml.cli.drawing import Drawing  # noqa: PLC0415  # only where a terminal has a panel

            self._drawing = Drawing(lambda: self._report(is_running=True), self._series, self._current)
        rows = self._drawing.rows(request)
        if rows is not None:
            with suppress(OSError):
                os.write(1, wording.answer(rows))

    def _series(self, metrics: tuple[str, ...], rank: Optional[int], window: tuple[int, int]) -> dict[str, Series]:
        reader, ranks = StoreReader(self._keeping.database), None if rank is None else (rank,)
        try:
            with reader.snapshot():
                return {name: read_series(reader, name, ranks=ranks, window=window) for name in metrics}
        finally:
            reader.close()

    def _current(self) -> Current:
        return self._collector.current()

    def _write_answers(self, pids: Iterable[int], report: Report) -> None:
        """For `final_summary()`, `summary()` and `report()` in the ranks' processes."""
        shown = {"text": card(report, cwd=self._manifest.cwd)}
        text = json.dumps({"report": to_plain(report), "summary": flat_summary(report), "card": shown})
        try:
            for pid in pids:
                write_private(self._ring_dir / f"report-{pid}.json", text)
        except OSError as error:
            self._note(f"A report that the script asked for could not be written ({error.strerror}).")

    def _summarize(self, *, is_running: bool = True) -> None:
        """Writes summary and card beside the database, and into the run folder where that is another and takes it."""
        report = self._report(is_running=is_running)
        self._verdict = verdict_line(report, width=_LINE_COLUMNS)[len(_NAME) :]
        if self._keeping.folder != self._folder:
            with suppress(OSError):  # the full or read-only folder, if it takes that much; the note names the other
                _write_files(self._folder, report, cwd=self._manifest.cwd)
        try:
            _write_files(self._keeping.folder, report, cwd=self._manifest.cwd)
        except OSError as error:
            self._note(f"The summary could not be written in '{self._keeping.folder}' ({error.strerror}).")
        self._write_answers(self._collector.pids, report)

    def _quiet(self) -> None:
        """The recording is over, and the script goes on."""
        self._summarize()
        if self._manifest.is_check and self._collector.ranks_train_on:
            with suppress(OSError):  # the launcher has just died
                os.write(1, self._check(is_running=True).encode(errors="backslashreplace"))

    def _check(self, *, is_running: bool) -> str:
        from traceml.report.check import check_of  # noqa: PLC0415  # only of a check
        from traceml.views.text.check import check_table  # noqa: PLC0415  # likewise

        reader = StoreReader(self._keeping.database)
        try:
            states = reader.states()
        finally:
            reader.close()
        return check_table(check_of(self._report(is_running=is_running), states))

    def _spare(self) -> None:
        """Keeps the ranks' logs short, and brings one orphaned run home, whose every process was killed at once."""
        for path in self._folder.glob(log_name("[1-9]*")):
            with suppress(OSError):  # a full disk, on which the ranks cannot write either
                shorten(path)
        if self._orphans is None:
            self._orphans = orphans(ring_roots())
        folder = next(self._orphans, None)
        if folder is None:
            return
        try:
            if recover(folder):
                _write_files(folder, open_run(folder).report(), cwd=read_manifest(folder).cwd)
        except Exception as error:  # noqa: BLE001  # another run's trouble, of whatever kind, must not be this run's
            print(f"cannot recover '{folder}': {error!r}", file=sys.stderr)

    def _note(self, text: str) -> None:
        self._notes.append(text)
        keeping = getattr(self, "_keeping", None)
        self._tell(RUNNING, self._folder if keeping is None else keeping.folder)

    def _tell(self, state: str, folder: Path) -> None:
        told = Node(state, os.getpid(), folder, tuple(self._notes), self._verdict, self._num_ranks)
        with suppress(OSError):  # somebody removed the ring folder: there is nobody left to tell
            write_node(self._ring_dir, told)


def _write_files(folder: Path, report: Report, *, cwd: str) -> None:
    write_summary(folder, report)
    write_private(folder / CARD_FILE, card(report, cwd=cwd))


def _pipe() -> Optional[int]:
    """The launcher's pipe on stdin; None when stdin is something else (plain python gives /dev/null)."""
    return 0 if stat.S_ISFIFO(os.fstat(0).st_mode) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
