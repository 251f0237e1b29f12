"""Finds the steps of a training that has no `trace_step`: decided late, from what was fetched, computed and updated.

A step ends with its last update, and that is known when the next one begins: a batch of the training loader arrives, or
an optimizer steps that already did in this step. Until then the open period is two: a piece up to the last update, and
what came since, which is the next step's once the end is declared. So phases add up to the periods exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Iterable, Optional

from traceml.analysis.division import (
    BACKWARD,
    BETWEEN,
    EVAL,
    FETCH,
    FORWARD,
    IN_STEP,
    NO_GRAD,
    NUM_SLOTS,
    OPTIMIZER,
    SLOT_OF,
    STARTING,
    SYNC,
    Draft,
    Period,
)
from traceml.analysis.ends import Ends
from traceml.analysis.periods import Periods
from traceml.analysis.waited import PeriodFetches
from traceml.wire import edges

_NUM_PATIENT: Final = 64  # backwards without any update, before each is taken for a step
COUNT_MASK: Final = (1 << edges.UPDATE_BITS) - 1

#: What an open code means here: a no-grad forward is an evaluation's or the step's own, which is known later.
SLOTS: Final = [NO_GRAD if code == edges.EVAL else slot for code, slot in enumerate(SLOT_OF)]
#: The slots whose close is looked at, while inferring and otherwise.
CLOSES: Final = [slot >= FETCH or slot in (BACKWARD, SYNC) for slot in range(NUM_SLOTS)]
CLOSES_EXPLICIT: Final = [slot >= FETCH or slot == SYNC for slot in range(NUM_SLOTS)]


@dataclass
class _Piece:
    """A period that ended with an update (or a backward), and may go on."""

    period: Period
    fetches: PeriodFetches
    end_ns: int
    position: int
    serial: int
    num_fetches: int
    resume: dict[str, Any]
    timeline: Any  # the Snapshot there
    num_updates: int = 0


class InferredSteps(Periods):
    """The open period, cut where a training without `trace_step` ends its steps."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._num_inferred = 0  # before the first trace_step; those behind it are counted apart by the recorder
        self._ends = Ends()
        self._piece: Optional[_Piece] = None  # up to the open step's last update
        self._rounds: list[_Piece] = []  # before it: the open step's, or steps of their own if the loader is over
        self._backwards: list[_Piece] = []  # while no update was ever seen: one a backward
        self._stepped: set[int] = set()  # the optimizers that stepped in the open step
        self._num_in_step = 0  # their updates
        self._has_run_out = False  # the training iterator: the next fetch is another one's
        self._is_next_batch = False  # work that begins now is on another batch than the work before
        self._inside: Optional[tuple[int, int]] = None  # the optimizer that stepped within an open step, and how deep
        self._in_backward: list[int] = []  # the optimizers that stepped within the open backward

    @property
    def infers(self) -> bool:
        """Whether steps are inferred; not any more once a `trace_step` was seen."""
        return self._is_inferring

    @property
    def _num_pending(self) -> int:
        num_updates = self._num_in_step + sum(piece.num_updates for piece in self._rounds)
        return int(self._piece is not None and self._ends.had_all(num_updates))

    # -- edges --------------------------------------------------------------------------------------------------------

    def _opened_inferring(self, slot: int) -> None:
        self._raised.opened(slot)
        period = self._period
        if slot == FETCH:
            self._fetch_opened()
        elif slot == FORWARD:
            self._has_forward = True
            if period.seen[NO_GRAD]:
                period.move(NO_GRAD, FORWARD)
            self._work()
            self._fetched_for_work()
        elif slot == BACKWARD:
            self._work()
            self._period.num_backwards += slot not in self._stack
            if self._fetches.has_open:
                self._fetched_for_work()
        elif slot == OPTIMIZER:
            period.num_optimizer_steps += slot not in self._stack
        elif slot == NO_GRAD:
            self._fetches.maybe_evaluated()

    def _closed_inferring(self, slot: int) -> None:
        period, fetches = self._period, self._fetches
        if slot in self._stack:
            return  # the outermost one counts
        if slot == FETCH:
            fetches.fetched(period.acc[FETCH])
            period.acc[FETCH] = 0
            self._is_next_batch |= self._has_run_out and not self._has_worked
            self._has_run_out = False
            if self._piece is not None and fetches.is_training:
                self._end_inferred("by_loader")
        elif slot == STARTING:
            fetches.started(period.acc[STARTING])
            period.acc[STARTING] = 0
        elif slot == NO_GRAD:
            if self._stack[0] == BETWEEN and not fetches.has_open:
                period.move(NO_GRAD, EVAL)
        elif slot == SYNC:
            self._synced()
        elif self._in_backward:
            serials, self._in_backward = self._in_backward, []
            self._update(serials)
        elif not self._ends.num_updates and OPTIMIZER not in self._stack:
            self._end_backward()

    def _fetch_opened(self) -> None:
        if OPTIMIZER in self._stack:
            self._close_across(OPTIMIZER)  # it raised
        fetches, period = self._fetches, self._period
        if fetches.opening():
            period.move(NO_GRAD, EVAL)
        if self._has_worked and self._is_before_training() and not period.num_backwards and not fetches.period.training:
            self._has_worked = False  # a forward to see whether the model works
        if not self._has_worked:
            if not fetches.feeds_the_same():
                period.move(IN_STEP, BETWEEN)
                if self._is_before_training():
                    self._fold_into_startup()
            self._stack[0] = IN_STEP

    def _no_batch(self) -> None:
        """An exhausting fetch delivered nothing: without a batch in hand the step has not begun."""
        is_training = self._fetches.exhausted()
        self._period.is_fed_before |= is_training
        if not self._is_inferring:
            return
        if is_training and self._has_worked and self._piece is not None:
            self._end_inferred("by_loader")  # this loop fetches before it updates: so it did at the other batches
        self._has_run_out = is_training or self._has_run_out
        self._is_next_batch |= is_training and not self._has_worked
        if not self._has_worked and not self._fetches.has_open:
            self._period.move(IN_STEP, BETWEEN)
            self._stack[0] = BETWEEN

    def _work(self) -> None:
        """Work with gradients begins."""
        if not self._has_worked:
            self._has_worked = True
            if self._is_next_batch:  # known without its fetch: a loader may fetch ahead, as accelerate's does
                self._is_next_batch = False
                if self._piece is not None:
                    self._end_inferred("by_loader")
            fetches = self._fetches.period
            if self._is_before_training() and not fetches.training and not fetches.undecided:
                self._fold_into_startup()  # no fetch feeds the first step: the startup ends here
                self._period.num_optimizer_steps += OPTIMIZER in self._stack  # of a closure's work
        self._stack[0] = IN_STEP

    def _fetched_for_work(self) -> None:
        self._fetches.forward()
        if self._piece is not None and self._fetches.period.training:
            self._end_inferred("by_loader")

    def _is_before_training(self) -> bool:
        return self._step == 0 and self._piece is None and not self._backwards

    # -- updates ------------------------------------------------------------------------------------------------------

    def _updated(self, value: int) -> None:
        """An optimizer's step is over."""
        serial, self._ends.num_updates = value >> edges.UPDATE_BITS, value & COUNT_MASK
        depth = self._stack.count(OPTIMIZER)
        if depth:
            if self._inside is None or self._inside[0] != serial or depth < self._inside[1]:
                self._inside = serial, depth
                return  # within another optimizer's step, or that of its own subclass, which counts
            self._close_across(OPTIMIZER)  # it was not: that one had raised
        self._inside = None
        if BACKWARD in self._stack:
            self._in_backward.append(serial)
        else:
            self._update((serial,))

    def _skipped(self, value: int) -> None:
        """A GradScaler kept an optimizer from stepping: the step ends all the same."""
        self._ends.num_updates = max(1, self._ends.num_updates)
        self._update((value >> edges.UPDATE_BITS,))

    def _update(self, serials: Iterable[int]) -> None:
        ends = self._ends
        self._join_backwards()
        if self._piece is not None:
            if not self._stepped.isdisjoint(serials):
                self._end_round()
        elif self._step == 0 and not self._has_worked and not self._fetches.has_open:
            return  # nothing to update with: `optimizer.step()` before the loop, to please a scheduler
        self._cut()
        for serial in serials:
            self._num_in_step += 1
            self._stepped.add(serial)
            if serial not in ends.optimizers:
                ends.optimizers.append(serial)

    def _end_round(self) -> None:
        """An optimizer steps again: the step's end, or one more update on its batch, which the next batch decides."""
        if not self._ends.come_by_loader:
            self._end_inferred("by_update")
            return
        assert self._piece is not None
        self._piece.num_updates = self._num_in_step
        self._rounds.append(self._piece)
        self._piece, self._num_in_step = None, 0
        self._stepped.clear()
        if len(self._rounds) >= self._ends.num_patient:
            self._end_rounds()

    def _end_rounds(self) -> None:
        """The loader is over: each round was a step."""
        self._ends.loader_is_over()  # before the first, so that a restart behind any of them goes on alike
        last, num_in_last, stepped = self._piece, self._num_in_step, {*self._stepped}
        rounds, self._rounds = self._rounds, []
        for piece in rounds:
            self._piece, self._num_in_step = piece, piece.num_updates
            self._end_inferred("by_update")
        self._piece, self._num_in_step, self._stepped = last, num_in_last, stepped

    def _join_rounds(self) -> None:
        """They were all on one batch."""
        last = self._piece
        assert last is not None
        if not self._rounds:
            return
        first, *others = self._rounds
        for piece in (*others, last):
            self._join(first.period, first.fetches, piece.period, piece.fetches)
        self._num_in_step += sum(piece.num_updates for piece in self._rounds)
        last.period, last.fetches, self._rounds = first.period, first.fetches, []

    def _end_last(self) -> None:
        """Nothing more comes that could end the open step: what ended with an update was a step."""
        if self._piece is None:
            return
        if len(self._rounds) + 1 > 2 * self._ends.most_rounds:  # one more each may be what is left of an epoch
            self._end_rounds()
        self._end_inferred("by_nothing")

    def _end_backward(self) -> None:
        """While no optimizer was ever seen a backward may be a step's end; the first update takes that back."""
        self._cut()
        assert self._piece is not None
        self._backwards.append(self._piece)
        self._piece = None
        if self._ends.by_backward or len(self._backwards) > _NUM_PATIENT:
            self._end_backwards()

    def _end_backwards(self) -> None:
        for piece in self._backwards:
            self._piece = piece
            self._end_inferred("by_backward")
        self._backwards = []

    def _join_backwards(self) -> None:
        """They were parts of one period, which goes on."""
        if not self._backwards:
            return
        first, *others = self._backwards
        for piece in others:
            self._join(first.period, first.fetches, piece.period, piece.fetches)
        self._join(first.period, first.fetches, self._period, self._fetches.period)
        self._period, self._backwards, self._has_worked = first.period, [], True

    # -- pieces and steps ---------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """The open step's piece ends here; what follows is apart until it is known whose it is."""
        period, fetches, stack = self._period, self._fetches, self._stack
        period.move(NO_GRAD, FORWARD)
        piece = self._piece
        if piece is not None:
            self._join(piece.period, piece.fetches, period, fetches.period)
        stack[0] = BETWEEN
        self._piece = _Piece(
            period=period if piece is None else piece.period,
            fetches=fetches.period if piece is None else piece.fetches,
            end_ns=self._last_ns,
            position=self.position,
            serial=fetches.serial,
            num_fetches=fetches.num_fetches(fetches.serial),
            resume={
                "updates": self._ends.num_updates,
                "stack": stack.copy(),
                "fetches": fetches.snapshot(),
                "has_run_out": self._has_run_out,
                "is_next_batch": self._is_next_batch,
            },
            timeline=self._timeline.snapshot() if self._timeline.is_on else None,
        )
        self._period = self._fresh()
        fetches.split()
        self._has_worked, self._inside = False, None

    def _end_inferred(self, how: str) -> None:
        """Declares that the open step ended where its piece does."""
        if how == "by_loader":
            self._ends.most_rounds = max(self._ends.most_rounds, len(self._rounds) + 1)
        if self._rounds:
            self._join_rounds()
        piece, self._piece = self._piece, None
        assert piece is not None
        self._ends.count(how, self._num_in_step)
        self._stepped.clear()
        self._num_in_step = 0
        self._fetches.settle(piece.fetches)
        self._step += 1
        draft = Draft(
            step=self._step,
            start_ns=self._start_ns(),
            end_ns=piece.end_ns,
            period=piece.period,
            fetches=piece.fetches,
            failed_in=None,
            position=piece.position,
            serial=piece.serial,
            num_fetches=piece.num_fetches,
            inference={**piece.resume, "ends": {**vars(self._ends), "optimizers": [*self._ends.optimizers]}},
            timeline=piece.timeline,
        )
        self._held.append(draft)
        if self._timeline.is_on:
            self._timeline.hold(draft, self._held)
        self._period_ns = piece.end_ns

    def _flush_inferred(self) -> None:
        """Nothing more comes: what ended with an update was a step, and where there was none, each backward was."""
        self._decide_rest()
        self._end_last()
        self._end_backwards()

    def _stop_inferring(self) -> None:
        """The first `trace_step` begins."""
        self._is_inferring = False
        self._decide_rest()
        self._end_last()
        self._num_inferred = self._step
        self._join_backwards()
        self._period.move(IN_STEP, BETWEEN)

    def _decide_rest(self) -> None:
        """No step of its own begins with what came since the last update, unless there was work."""
        self._fetches.opening()
        if not self._has_worked:
            self._period.move(IN_STEP, BETWEEN)
            self._period.move(NO_GRAD, EVAL)

    def _tell_ends(self) -> None:
        self._tell_events()
        if self._ends.total:
            self.state = replace(self.state, inferred=True, unsure=self._ends.unsure())

    # -- gaps and restarts --------------------------------------------------------------------------------------------

    def _forget_pieces(self) -> None:
        """Edges were lost: the open step is not known any more."""
        self._piece, self._rounds, self._backwards, self._has_worked = None, [], [], False
        self._stepped.clear()
        self._num_in_step, self._inside, self._in_backward = 0, None, []
        self._has_run_out = self._is_next_batch = False

    def _resume_inferring(self, found: dict[str, Any]) -> None:
        self._is_inferring = True
        self._ends = Ends(**found["ends"])
        self._ends.num_updates = found["updates"]
        self._stack = found["stack"]
        self._period = self._fresh()
        self._fetches.restore(found["fetches"])
        self._has_run_out = found.get("has_run_out", False)
        self._is_next_batch = found.get("is_next_batch", False)
