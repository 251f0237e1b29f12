"""Clocks what the recorder itself costs on the training thread, and gives up optional signals above a budget.

Now and then one step is clocked: all hooks take their index, clock and thread from here meanwhile, and the time from a
hook's entry (or from the original's return) to its stamp is added up. So each edge is measured where it stands, with
the caches as the training left them, and the other steps pay nothing (docs/decisions/0009).
"""

from __future__ import annotations

from statistics import median
from threading import get_ident
from time import perf_counter, thread_time
from typing import Callable, Final, Mapping

from traceml.recorder.pen import BILL, COLLECTIONS, NEVER, Pen
from traceml.schema.bill import OVERHEAD_BUDGET_PCT, Bill, Shed
from traceml.wire import edges

HOOK: Final = BILL
BATCHES: Final = "batches"
_FIRST_STEP: Final = 8  # the ones before it make pools, look for models, compile
_INTERVAL_S: Final = 0.05  # between two clocked steps
_NUM_CLOCKED: Final = 16  # steps to an account
_NUM_OVER: Final = 2  # accounts in a row above the budget, until something is shed
_FAR_OVER: Final = 5  # times the budget: one account is enough
#: Seconds a step below which nothing is shed, whatever their share: what tracing may cost with and without events.
_FLOOR_S: Final = {"host": 25e-6, "device": 60e-6}
_MIN_PART: Final = 0.2  # of our own time: without a signal that costs less it would be the same
_MIN_GROWTH: Final = 1.25  # of the steps told last, until the bill is told again

#: Edges whose hook begins with asking for the thread; the others begin where the original has returned.
_ENTERED: Final = (edges.OPENS - {edges.GC, edges.COMPILE, edges.SYNC}) | {
    edges.STEP_BEGIN,
    edges.OPTIMIZER + edges.CLOSE,
    edges.UPDATED,
}
_NOT, _FROM_NUMBER, _FROM_ENTRY = range(3)
_CLOCKED: Final = bytes(
    _FROM_ENTRY if code in _ENTERED else _FROM_NUMBER if code < edges.FIRST_VALUE else _NOT for code in range(256)
)
_WAITING, _IDLE, _ARMED, _OPEN = range(4)


class Biller:
    """The bill of one session.

    Args:
        pen: Of the session.
        sheds: How each optional signal is given up, in the order in which they are; each takes the reason.
    """

    def __init__(self, pen: Pen, sheds: Mapping[str, Callable[[str], None]]) -> None:
        self._pen, self._sheds = pen, dict(sheds)
        self.budget = OVERHEAD_BUDGET_PCT / 100  # of the period
        self.interval_s = _INTERVAL_S  # between two clocked steps
        self._state = _WAITING
        self._is_on = self._is_left_out = False  # the latter: the compiler has heard of the functions below
        self.due = 0.0  # on the edges' clock
        self._num_seen = -1  # steps at the last look
        self._ours = self._before = (pen.nxt, pen.clock)
        self._spent = [0.0] * 4  # of the clocked step: edges, device events in them, batches, collections
        self._clocked: list[tuple[float, ...]] = []
        self._rare_s = 0.0  # housekeeping, memory, this here; since the last account
        self._num_over = 0
        self._wall_at, self._steps_at = 0.0, 0
        self._num_steps = self._num_clocked = self._num_told = 0
        self._own_s = self._wall_s = 0.0

    def start(self) -> None:
        """Begins with the ninth step."""
        self._pen.guard.register(HOOK, self.stop)
        self._is_on = True

    def stop(self) -> None:
        """The last account is told. A second call does nothing."""
        if not self._is_on:
            return
        self._is_on, self.due = False, NEVER
        self._give_back()
        if self._pen.owner is not None and self._clocked:
            self._account()
            self._tell()

    def ended(self) -> float:
        """Right behind a step's end, or an update, that is past the pen's `due`: ends a clocked step.

        Returns:
            The thread's own time in seconds: what is rare is too seldom for a median to pass over waits for a core.
        """
        now = thread_time()
        if self._state == _OPEN and self._pen.num_steps != self._num_seen:
            is_whole = self._pen.nxt is self._ours[0] and self._pen.num_steps == self._num_seen + 1
            self._give_back()
            if is_whole:
                self._clocked.append(tuple(self._spent))
        return now

    def tended(self, since: float) -> None:
        """The pen has tended to what was due since `since`: that is on the bill; the next clocked step may begin."""
        if not self._is_on:
            return
        pen = self._pen
        if self._state == _WAITING:
            if pen.num_steps < _FIRST_STEP:
                return
            self._begin_account()
            self._state = _IDLE
        elif self._state == _ARMED and pen.num_steps != self._num_seen:
            self._clock_next()
        elif self._state == _IDLE and pen.clock() >= self.due:
            if len(self._clocked) >= _NUM_CLOCKED:
                self._rare_s += thread_time() - since
                since = thread_time()
                self._judge(*self._account())
                self._begin_account()
            self._state, self.due = _ARMED, 0.0  # the step that comes is not clocked: this here made the caches cold
        self._num_seen = pen.num_steps
        self._rare_s += thread_time() - since

    # -- clocking ------------------------------------------------------------------------------------------------------

    def _clock_next(self) -> None:
        pen = self._pen
        self._before = (pen.nxt, pen.clock)
        self._spent = pen.clocked = [0.0] * 4
        self._ours = self._make_writer(self._spent)
        self._state = _OPEN
        if pen.look is not None:
            pen.look = _Look(pen.look, self._spent)
        pen.swap(*self._ours)

    def _give_back(self) -> None:
        """The hooks have what they had before, unless somebody else has given them something meanwhile."""
        pen = self._pen
        if self._state != _OPEN:
            return
        self._state = _IDLE
        pen.who, pen.clocked = get_ident, None
        pen.look = getattr(pen.look, "look", pen.look) if isinstance(pen.look, _Look) else pen.look
        nxt, clock = self._before if pen.nxt is self._ours[0] else (pen.nxt, pen.clock)
        pen.swap(nxt, clock)
        self.due = pen.clock() + self.interval_s

    def _make_writer(self, spent: list[float]) -> tuple[Callable[[], int], Callable[[], float]]:
        """What hooks number and time their edges with in a clocked step, and ask for the thread."""
        pen = self._pen
        count, host = self._before
        codes, mask = pen.codes, pen.mask
        has_events = pen.clock_used == "device"
        entered = numbered = 0.0
        newest = -1

        def who() -> int:
            nonlocal entered
            entered = perf_counter()
            return get_ident()

        def nxt() -> int:
            nonlocal numbered, newest
            numbered = perf_counter()
            newest = j = count()
            return j

        def clock() -> float:
            nonlocal newest
            j, newest = newest, -1
            kind = _CLOCKED[codes[j & mask]] if j >= 0 else _NOT
            if not kind:
                return host()
            started = perf_counter() if has_events else 0.0
            now = host()
            done = perf_counter()
            spent[0] += done - (entered if kind == _FROM_ENTRY else numbered)
            if has_events:
                spent[1] += done - started
            return now

        if not self._is_left_out:
            self._is_left_out = True
            for ours in (who, nxt, clock):
                pen.skip(ours, whole=True, awaits=False)
        pen.who = who
        return nxt, clock

    # -- accounts ------------------------------------------------------------------------------------------------------

    def _begin_account(self) -> None:
        self._wall_at, self._steps_at = perf_counter(), self._pen.num_steps
        self._rare_s = 0.0
        self._clocked.clear()
        self._pen.spent.clear()

    def _account(self) -> tuple[float, float, Mapping[str, float]]:
        """Adds up since the last account.

        A median of the clocked steps: one in which a collection ran inside a hook, or the thread waited for a core, is
        no step's usual cost. What is rare is added as it was.

        Returns:
            Our own seconds a step, their share of the wall, and the seconds a step of each optional signal.
        """
        num_steps = max(1, self._pen.num_steps - self._steps_at)
        wall_s = max(1e-9, perf_counter() - self._wall_at)
        edges_s, events_s, batches_s, _ = (median(column) for column in zip(*self._clocked))
        collections_s = sum(spent[COLLECTIONS] for spent in self._clocked) / len(self._clocked)  # not in every step
        spent = {name: seconds / num_steps for name, seconds in self._pen.spent.items()}
        own_s = edges_s + batches_s + self._rare_s / num_steps + collections_s
        self._num_steps += num_steps
        self._num_clocked += len(self._clocked)
        self._own_s += own_s * num_steps
        self._wall_s += wall_s
        if self._num_steps >= self._num_told * _MIN_GROWTH:
            self._tell()
        parts = {**spent, "gc": collections_s, BATCHES: batches_s}
        parts["device clock"] = parts.get("device clock", 0.0) + events_s
        return own_s, own_s * num_steps / wall_s, parts

    def _judge(self, own_s: float, share: float, parts: Mapping[str, float]) -> None:
        """Sheds the first signal in order that is worth it, where two accounts in a row are above the budget."""
        is_over = share > self.budget and own_s > _FLOOR_S[self._pen.clock_used]
        self._num_over = self._num_over + 1 if is_over else 0
        if self._num_over < (1 if share > _FAR_OVER * self.budget else _NUM_OVER):
            return
        pen = self._pen
        for signal, shed in self._sheds.items():
            part_s = parts.get(signal, 0.0)
            if part_s >= _MIN_PART * own_s:
                del self._sheds[signal]
                self._num_over = 0
                pen.ring.send(
                    Shed(
                        signal=signal,
                        step=pen.num_steps,
                        at_ns=pen.clock_ns(),
                        us_per_step=round(own_s * 1e6, 1),
                        pct=round(share * 100, 2),
                        signal_us=round(part_s * 1e6, 1),
                    )
                )
                shed(f"given up at step {pen.num_steps}: tracing took {share * 100:.1f} % of the period")
                return

    def _tell(self) -> None:
        self._num_told = self._num_steps
        self._pen.ring.send(
            Bill(
                num_steps=self._num_steps,
                num_clocked=self._num_clocked,
                own_ns=int(self._own_s * 1e9),
                wall_ns=int(self._wall_s * 1e9),
            )
        )


class _Look:
    """Looks into a batch, and clocks it."""

    __slots__ = ("_spent", "look")

    def __init__(self, look: Callable[[object], None], spent: list[float]) -> None:
        self.look, self._spent = look, spent

    def __call__(self, batch: object) -> None:
        started = perf_counter()
        self.look(batch)
        self._spent[2] += perf_counter() - started
