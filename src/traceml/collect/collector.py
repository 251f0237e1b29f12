"""Runs a run's collecting: tails the rings, samples, stores, answers, and sees the end."""

from __future__ import annotations

import select
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Final, Mapping, Optional, Sequence

from traceml.collect.aligning import Aligning
from traceml.collect.arrivals import Arrivals
from traceml.collect.attempts import attempt_of, deaths_of, events_of, is_former, were_interrupted
from traceml.collect.bell import Bell
from traceml.collect.callbacks import Callbacks
from traceml.collect.end import Departure, ScriptExit, exit_of, run_end, training_exit
from traceml.collect.halting import Looks
from traceml.collect.life import Life, Orphans
from traceml.collect.moment import current_of, slots_of
from traceml.collect.rings import Rings
from traceml.collect.stalling import Stalling

if TYPE_CHECKING:
    from traceml.collect.keeping import Keeping
    from traceml.collect.launcher import Launcher
    from traceml.collect.sampling import Sampling
    from traceml.collect.tail import Portion, RingTail
    from traceml.schema.attempts import RankDeath
    from traceml.schema.current import Current
    from traceml.schema.records import Event, Manifest, RankEnd, RunEnd

TURN_S: Final = 0.2  # a ring holds 2.6 s at 20,000 steps a second
_CALM_TURN_S: Final = 0.8  # a turn costs as much as 20 steps; whoever asks, or ends, is heard at once
_FEW: Final = 4  # ranks that are looked at within a turn, too: a short stop lies between two looks
_BUSY_STEPS: Final = 200  # of a rank in a turn: 1,000 a second
_STEPS_AT_ONCE: Final = 4_096  # in one transaction
SAMPLE_NS: Final = 1_000_000_000
_EXITS: Final = ("end", "exception")
_GRACE_S: Final = 1.0  # what a rank has to end in after its script has


class Collector:
    """Collects one run on one node, from its first ring to its end.

    Loses nothing that the rings still hold; a step is in the database at most 1 s after it ended. Costs about 1 % of
    a core beside the arithmetic of the edges (2 us each, 0.6 in a step that repeats the order of an earlier one).

    Args:
        manifest: The run's.
        keeping: Its database.
        launcher: What tells how the script ends.
        sampling: None: no samples (a run whose processes are all gone).
        callbacks: The composition root's part.
        clock: The records' clock, ns.
    """

    def __init__(
        self,
        manifest: Manifest,
        keeping: Keeping,
        launcher: Launcher,
        *,
        sampling: Optional[Sampling],
        callbacks: Callbacks,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._manifest, self._keeping, self._launcher = manifest, keeping, launcher
        self._sampling, self._callbacks, self._clock = sampling, callbacks, clock
        self._ring_dir = Path(manifest.ring_dir)
        self._bell, self._life = Bell(self._ring_dir), Life(clock)
        self._tails: dict[str, RingTail] = {}
        cursors, is_live, self._arrivals = keeping.cursors(), sampling is not None, Arrivals(self._life)
        self._rings = Rings(self._ring_dir, self._arrivals, cursors=cursors, noted=callbacks.note, is_live=is_live)
        self._aligning = Aligning(keeping.ledger(), keeping.steps_from)
        self._stalling, self._looks = Stalling(), Looks()
        self._former: dict[str, RingTail] = {}  # rings of attempts that a restart has ended
        self._attempt = max((attempt.number + 1 for attempt in keeping.attempts()), default=0)
        self._sample_at_ns = 0
        self._sampled: Mapping[str, Any] = {}  # the newest
        self._launcher_gone_ns: Optional[int] = None
        self._exit_at: Optional[float] = None
        self._was_quiet = self._is_busy = False
        self._orphans = Orphans(self._ring_dir, self._life)
        self._departed: Optional[Departure] = None
        self._ends: list[Optional[RankEnd]] = []
        if manifest.launcher_pid is not None:
            self._life.watch(manifest.launcher_pid, born_before=manifest.created_at)

    def run(self) -> RunEnd:
        """Collects until the run is over; the database is complete then, its end included.

        Raises:
            StoreFull: No disk takes the end.
        """
        self._launcher.hear_what_is_there()  # it may be gone already, and the training with it
        while True:
            self._turn()
            if self._is_over():
                break
            self._sleep()
        return self._finish()

    @property
    def pids(self) -> list[int]:
        """The ranks' processes, living or not."""
        return [tail.pid for tail in self._tails.values()]

    @property
    def ranks_exit(self) -> bool:
        """Whether every rank said goodbye because its process ends, not because of a `shutdown()`."""
        return all(end is not None and end.how in _EXITS for end in self._ends)

    @property
    def ranks_train_on(self) -> bool:
        """Whether every rank has ended its recording, and not because its process ends."""
        ends = [tail.state.end for tail in self._ranks]
        return bool(ends) and all(end is not None and end.how not in _EXITS for end in ends)

    @property
    def may_end_late(self) -> bool:
        """Whether nobody has said yet how the ranks' processes ended, and it is the run's end; after `run`."""
        was_told = self._departed is None or self._departed.exit is not None
        return not was_told and not all(end is not None and end.how not in _EXITS for end in self._ends)

    def late_end(self) -> Optional[RunEnd]:
        """The run's end, where the kernel tells more of it once the ranks are gone; after `ranks_leave`.

        Without a launcher nobody sees a `sys.exit(7)`: the rank itself says goodbye as after a good end. After a
        `shutdown()` the process is no longer the run's, and how it ends says nothing.
        """
        if self._departed is None or not self.may_end_late:
            return None
        statuses = [self._life.wait_status(pid) for pid in self.pids]
        if not statuses or None in statuses:
            return None
        status = next((status for status in statuses if status), 0)
        return run_end(replace(self._departed, exit=exit_of(status)))

    def current(self) -> Current:
        """How the run stands at this moment."""
        return current_of(self._ranks, self._life, self._stalling, self._sampled, now_ns=self._clock())

    def ranks_leave(self, patience_s: float) -> bool:
        """Whether every rank's process is gone, within `patience_s` seconds; after `run`."""
        until = time.monotonic() + patience_s
        while True:
            self._life.look()
            if all(self._life.is_gone(pid) for pid in self.pids):
                return True
            if time.monotonic() >= until:
                return False
            select.select(self._life.fds, [], [], min(TURN_S, until - time.monotonic()))

    # -- a turn -------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._life.look()
        self._notice_launcher()
        self._find_rings()
        self._notice_halts()
        now_ns = self._clock()
        more: Mapping[str, Any] = {}
        living = [(tail.pid, tail.state) for tail in self._tails.values() if not self._life.is_gone(tail.pid)]
        is_due = self._sampling is not None and now_ns >= self._sample_at_ns
        if is_due and self._sampling is not None:
            self._sample_at_ns = now_ns + SAMPLE_NS
            self._sampled = more = self._sampling.take(now_ns, living)
        self._drain(more, is_due=is_due)
        self._stop_tracing()
        self._answer()
        if is_due:
            self._callbacks.spare()

    def _drain(self, more: Mapping[str, Any], *, is_due: bool = False) -> None:
        """Stores what is new of all rings in one transaction, with the states, the live slots and `more`.

        A ring that has much to tell, or begins another attempt, has its earlier portions stored before.
        """
        news: list[Portion] = []
        has_news, self._is_busy = is_due, False
        for tail in sorted(self._tails.values(), key=lambda tail: tail.state.identity.attempt):
            for portion in tail.pump():
                attempt = tail.state.identity.attempt
                if attempt < self._attempt:
                    self._former[tail.name] = self._tails.pop(tail.name)
                    break
                if attempt > self._attempt:
                    self._put(news)
                    self._begin_attempt(attempt)
                has_news = has_news or portion.has_news
                if portion.is_empty:
                    continue
                num_steps = len(portion.taken.steps)
                self._is_busy = self._is_busy or num_steps > _BUSY_STEPS
                if num_steps + sum(len(one.taken.steps) for one in news) > _STEPS_AT_ONCE:
                    self._put(news)
                news.append(portion)
                self._aligning.feed(tail.state, portion.taken.steps)
                self._stalling.feed(portion.taken.steps)
        if news or has_news:
            self._store(news, more, is_due=is_due)

    def _put(self, news: list[Portion]) -> None:
        """Stores these portions, and forgets them."""
        if news:
            self._keeping.put(news, **self._aligning.take())
            news.clear()

    def _store(self, news: Sequence[Portion], more: Mapping[str, Any], *, is_due: bool) -> None:
        now_ns, ranks = self._clock(), self._ranks
        live = slots_of(ranks, self._life, now_ns=now_ns)
        states = [tail.state for tail in ranks]
        if is_due:
            self._stalling.sampled(more)
            self._tell(self._stalling.look(live, ranks, self._life, now_ns=now_ns))
        live = self._stalling.marked(live)
        self._keeping.put(news, live=live, states=states, **self._aligning.take(), **more)

    def _tell(self, events: Sequence[Event]) -> None:
        if events:
            self._keeping.append(events=events)

    def _begin_attempt(self, attempt: int) -> None:
        """The ranks were started again: what the former ones left unfinished is stored, and put aside."""
        self._attempt = attempt
        former = [tail for tail in self._tails.values() if is_former(tail, self._life, attempt=attempt)]
        if former:
            self._end_attempt(former)
            for tail in former:
                self._former[tail.name] = self._tails.pop(tail.name)

    def _end_attempt(self, former: list[RingTail]) -> None:
        now_ns = self._clock()
        self._life.look()
        for tail in former:
            gone_ns = self._life.gone_ns(tail.pid) if self._life.is_gone(tail.pid) else now_ns
            portion = tail.finish(end_ns=gone_ns or 0)
            self._aligning.feed(tail.state, portion.taken.steps)
            self._keeping.put([portion], states=[tail.state], **self._aligning.take())
        self._tell(self._stalling.over(now_ns))
        self._stalling = Stalling()
        self._keeping.begin_attempt(attempt_of(former, self._life, now_ns=now_ns))
        self._aligning = Aligning(None, self._keeping.steps_from)

    def _find_rings(self) -> None:
        for tail in self._rings.find({*self._tails, *self._former}, next_rank=len(self._tails)):
            self._tails[tail.name] = tail
            self._life.watch(tail.pid, born_before=tail.made_at)
            self._sample_at_ns = 0  # at once: its training may be over before the next round

    @property
    def _ranks(self) -> list[RingTail]:
        """The rings that count: one without a step (a parent that called init() and lets others train) is no rank."""
        tails = list(self._tails.values())
        return [tail for tail in tails if tail.state.last_step is not None] or tails

    def _notice_halts(self) -> None:
        """Before the rings are read: a step that is open while its process stands still has not been read yet."""
        for tail in self._tails.values():
            if self._sampling is not None and tail.state.end is None and not self._life.is_gone(tail.pid):
                tail.halted(self._looks.why_halted(tail.pid), self._clock())

    def _stop_tracing(self) -> None:
        """Tells the ranks that have taken the steps asked for; where steps are inferred, only we count them."""
        num_steps = self._manifest.trace_max_steps
        for tail in self._tails.values():
            if num_steps is not None and tail.state.end is None and (tail.state.last_step or 0) >= num_steps:
                tail.stop()

    def _answer(self) -> None:
        if self._launcher.wants_line:
            self._launcher.wants_line = False
            self._callbacks.line()
        self._draw()
        for tail in self._tails.values():
            wanted = tail.wanted
            if wanted:
                self._drain({})  # what was finished before the question
                self._callbacks.answer(tail.pid)
                tail.answered(wanted)

    def _draw(self) -> bool:
        request, self._launcher.wants_panel = self._launcher.wants_panel, None
        if request is not None and self._callbacks.panel is not None:
            self._callbacks.panel(request)
        return request is not None

    def _sleep(self) -> None:
        """Until the next turn is due, or something happens; the panel alone needs no turn."""
        until = time.monotonic() + (TURN_S if self._is_busy else _CALM_TURN_S)
        while True:
            asking, bell = self._launcher.fd, self._bell.fd
            fds = [*self._life.fds, *(fd for fd in (asking, bell) if fd is not None)]
            readable, _, _ = select.select(fds, [], [], max(0.0, min(TURN_S, until - time.monotonic())))
            if not readable and time.monotonic() < until:
                if len(self._tails) <= _FEW:
                    self._notice_halts()
                continue
            if bell in readable:
                self._bell.hear()
            if asking in readable:
                self._launcher.hear()
            is_more = self._launcher.wants_line or self._launcher.exit is not None
            if readable != [asking] or is_more or not self._draw():
                return

    # -- the end ------------------------------------------------------------------------------------------------------

    def _notice_launcher(self) -> None:
        launcher = self._launcher
        if launcher.script_pid is not None:
            self._life.watch(launcher.script_pid)
        if launcher.exit is not None and self._exit_at is None:
            self._exit_at = time.monotonic()
        if launcher.was_there and not launcher.is_there and launcher.exit is None and self._launcher_gone_ns is None:
            self._launcher_gone_ns = self._clock()
            self._callbacks.orphaned()

    def _is_over(self) -> bool:
        """Whether nothing of the run is left to wait for."""
        ranks_gone = all(self._life.is_gone(tail.pid) for tail in self._tails.values())
        if self._launcher.exit is not None:
            assert self._exit_at is not None
            return ranks_gone or self._all_said_goodbye() or time.monotonic() - self._exit_at > _GRACE_S
        if self._launcher.is_there:
            self._notice_quiet()
            return False
        if self._launcher.was_there:
            script = self._launcher.script_pid
            return ranks_gone and (not self._orphans.are_there() if script is None else self._life.is_gone(script))
        starter = self._manifest.launcher_pid
        return self._all_said_goodbye() or (ranks_gone and (starter is None or self._life.is_gone(starter)))

    def _all_said_goodbye(self) -> bool:
        return bool(self._tails) and all(tail.state.end is not None for tail in self._tails.values())

    def _notice_quiet(self) -> None:
        if not self._was_quiet and self._all_said_goodbye():
            self._was_quiet = True
            self._callbacks.is_quiet()

    def _finish(self) -> RunEnd:
        now_ns = self._clock()
        self._find_rings()
        self._drain({})
        last_ns, ranks = 0, self._ranks
        for tail in self._tails.values():
            # 0: it was gone before anybody looked; its last edge is its end.
            gone_ns = self._life.gone_ns(tail.pid) if self._life.is_gone(tail.pid) else now_ns
            if tail not in ranks:
                continue
            portion = tail.finish(end_ns=gone_ns or 0)
            last_ns = max([last_ns, *(part.start_ns + part.duration_ns for part in portion.taken.segments)])
            self._aligning.feed(tail.state, portion.taken.steps)
            self._keeping.put([portion], states=[tail.state], **self._aligning.take())
        trained = {tail.state.identity.attempt for tail in (*self._tails.values(), *self._former.values())}
        self._keeping.add_attempts(self._arrivals.attempts(trained, now_ns=now_ns))
        died = deaths_of(ranks, self._life, now_ns=now_ns)
        self._tell([*self._stalling.over(now_ns), *events_of(died, ranks, memory_of=self._stalling.memory_of)])
        self._keeping.append(live=[tail.live(last_ns, alive=False) for tail in ranks])
        first = [death.rank for death in died] + [tail.state.identity.rank for tail in ranks]
        ordered = sorted(ranks, key=lambda tail: first.index(tail.state.identity.rank))
        self._ends = [tail.state.end for tail in ordered]  # whose exception is told first
        self._departed = self._departure(now_ns, last_ns, died)
        end = run_end(self._departed)
        self._keeping.put_end(end)
        self._keeping.close()
        self._bell.close()
        for tail in (*self._tails.values(), *self._former.values()):
            tail.close()
        self._looks.close()
        if self._sampling is not None:
            self._sampling.close()
        return end

    def _departure(self, now_ns: int, last_ns: int, died: Sequence[RankDeath]) -> Departure:
        ended_ns = now_ns
        if self._launcher.exit is None:
            ended_ns = last_ns or (now_ns if self._sampling is not None else self._manifest.created_ns)
        ended_at = self._manifest.created_at + (ended_ns - self._manifest.created_ns) / 1e9
        return Departure(
            exit=self._exit(),
            ends=self._ends,
            ended_ns=ended_ns,
            ended_at=ended_at,
            launcher_gone_ns=self._launcher_gone_ns,
            was_interrupted=were_interrupted(died),
            first_death=f"rank {died[0].rank} {died[0].how}" if died else "",
        )

    def _exit(self) -> Optional[ScriptExit]:
        """How the command ended, or the one training that it had started."""
        told, ranks = self._launcher.exit, self._ranks
        if told is None or len(ranks) != 1 or ranks[0].pid == self._launcher.script_pid:
            return told
        seen, note = training_exit(told, self._life.wait_status(ranks[0].pid))
        if note:
            self._callbacks.note(note)
        return seen
