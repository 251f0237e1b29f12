"""Holds what every hook writes with: the ring's columns, the index, the clock, and who may write.

An edge is `k = nxt() & mask; codes[k] = CODE; stamps[k] = clock()`. `itertools.count` reserves a slot in one C call, so
a garbage collection that starts between two of our bytecodes takes a slot of its own and harms nothing. Hooks are
closures over these names: a helper call an edge would double their cost.
"""

from __future__ import annotations

import itertools
import sys
import time
from threading import get_ident
from types import CodeType, MappingProxyType
from typing import Any, Callable, Final, Mapping, Optional

from traceml.recorder.guard import Guard, say
from traceml.recorder.tracebacks import conceal
from traceml.schema.phases import MAX_REGIONS, REGION_PREFIX, region_name
from traceml.schema.records import RegionName, Unrecorded, Watching
from traceml.wire import edges
from traceml.wire.ring import PUBLISHED, STOP, RingWriter

NEVER: Final = float("inf")
HOUSE: Final = "house"
BILL: Final = "bill"
COLLECTIONS: Final = 3  # their place in what a clocked step has spent
HOUSE_S: Final = 0.1  # between two housekeepings: some 30 us, so rarely that no hundredth of the steps is one of them
_NUM_EARLY: Final = 3  # steps after each of which it is looked whether all is seen


class _NoWaits:
    """One rank waits for nobody."""

    __slots__ = ()
    is_open = by_node = False


NO_WAITS: Final = _NoWaits()


class _Hot:
    """What hooks read at each call, together in two cache lines: slots lie in the alphabet's order, a base's first."""

    __slots__ = ("busy", "due", "in_step", "infers", "iterator", "look", "num_steps", "owner")


class Pen(_Hot):
    """One writer's state. `owner` is the thread whose edges count; None: nothing is recorded any more.

    `busy` says that a forward, backward or fetch is open: what happens inside belongs to it.
    """

    __slots__ = (
        "_told_unrecorded",
        "await_compiler",
        "billing",
        "clock",
        "clock_note",
        "clock_used",
        "clocked",
        "codes",
        "forward_class",
        "guard",
        "has_compiled",
        "has_compiled_itself",
        "has_updated",
        "house_due",
        "is_copying",
        "is_installing",
        "late_looks",
        "loaders",
        "look_for_ranks",
        "mask",
        "memory_due",
        "method_class",
        "num_failures",
        "num_forwards",
        "nxt",
        "on_arrival",
        "on_compiled",
        "read_memory",
        "regions",
        "ring",
        "said",
        "sees_models",
        "skip_code",
        "skipped",
        "slot",
        "spent",
        "split_backward",
        "stamps",
        "stop",
        "stop_at",
        "swaps",
        "total_steps",
        "unrecorded",
        "unseen",
        "waits",
        "watched",
        "who",
        "wrappers_of",
    )

    def __init__(self, ring: RingWriter, clock: Callable[[], float] = time.perf_counter) -> None:
        self.ring, self.stamps, self.codes, self.mask = ring, ring.stamps, ring.codes, ring.num_edges - 1
        self.nxt: Callable[[], int] = itertools.count().__next__
        self.clock = clock
        self.who: Callable[[], int] = get_ident  # the thread that asks
        self.swaps: list[Callable[[], None]] = []  # hooks take `nxt`, `clock` and `who` anew
        self.clock_used, self.clock_note = "host", ""
        self.owner: Optional[int] = get_ident()
        self.busy = self.is_copying = False
        self.in_step: Any = False  # the open step, while there is one
        self.infers = False  # no trace_step yet: steps are inferred
        self.num_forwards = 0  # since the last update, while inferring
        self.num_steps = self.num_failures = self.iterator = 0
        self.due = self.house_due = 0.0  # on the edges' clock: when a step's end tends to something, and keeps house
        self.forward_class: Any = None  # what stands in a model's slot
        self.method_class: Any = None  # what stands in an instance's `forward`
        self.slot = ""  # the name under which trace_step looks for it
        self.sees_models = True  # every model given to trace_step; else only those given to wrap_forward
        self.wrappers_of: Callable[[tuple[Any, ...]], tuple[Any, ...]] = _no_wrappers
        self.loaders: Any = None  # numbers loaders and iterators
        self.look: Optional[Callable[[object], None]] = None  # looks into batches of the current iterator
        self.guard = Guard(ring.send, self.unwind)
        self.regions: dict[str, int] = {}
        self.said: set[str] = set()  # what the user was told once
        self.late_looks: list[Callable[[], None]] = []  # for modules that are loaded later
        self.look_for_ranks: Callable[[], None] = _nobody_waits  # a model is traced: there may be several by now
        self.split_backward: Optional[Callable[[Callable[..., Any]], Callable[..., Any]]] = None  # several ranks
        self.waits: Any = NO_WAITS  # whether a wait is open that a backward ends; several ranks
        self.skipped: list[tuple[CodeType, bool]] = []  # our functions that may run under a compiled frame
        self.skip_code: Optional[Callable[[CodeType], object]] = None  # torch._dynamo's, once it is loaded
        self.on_arrival: list[Callable[[], None]] = []  # to be done then
        self.await_compiler: Callable[[], None] = _nobody_waits  # torch._dynamo's import is waited for from now on
        self.has_compiled = False  # somebody compiles, or may
        self.has_compiled_itself: Callable[[Any], None] = no_matter  # a model, by its `compile()`
        self.has_updated: Callable[[Any, Any, Any], None] = no_update  # an optimizer that is not torch's
        self.on_compiled: list[Callable[[], None]] = []  # to be done before the first compilation
        self.watched: tuple[str, ...] = ()
        self.unseen: dict[str, str] = {}
        self.total_steps: Optional[int] = None
        self.unrecorded = self._told_unrecorded = Unrecorded()
        self.billing: Any = None  # clocks us
        self.clocked: Optional[list[float]] = None  # while a step is: what its parts cost, in seconds
        self.spent: dict[str, float] = {}  # seconds, by optional signal, since the biller took them
        self.memory_due = NEVER
        self.is_installing = False  # hooks may tell already; it is sent when all are there
        self.read_memory: Callable[[float], None] = _no_memory
        self.stop_at = -1
        self.stop: Callable[[], None] = _no_memory_stop

    def swap(self, nxt: Callable[[], int], clock: Callable[[], float]) -> None:
        """Every edge from now on is numbered and timed by these: once an accelerator is used, they record events."""
        self.nxt, self.clock = nxt, clock
        self.renew()

    def renew(self) -> None:
        """Hooks take anew what they keep of this pen."""
        for renew in self.swaps:
            renew()

    def stamp(self, code: int) -> float:
        """Writes one edge, off the hot path."""
        k = self.nxt() & self.mask
        self.codes[k] = code
        now = self.stamps[k] = self.clock()
        return now

    def clock_ns(self) -> int:
        """Now, on the edges' clock."""
        return int(self.clock() * 1e9)

    def value(self, code: int, number: float) -> None:
        """Writes one value entry."""
        k = self.nxt() & self.mask
        self.codes[k] = code
        self.stamps[k] = number

    def raised(self) -> None:
        """An exception leaves the open phase."""
        conceal()
        try:
            self.stamp(edges.RAISED)
        except BaseException as error:  # noqa: BLE001  # ours must not hide the user's
            self.guard.fault("raised", error)

    def unwind(self) -> None:
        """A signal handler's exception leaves one of our own lines: nothing is open any more."""
        self.busy = self.is_copying = False
        self.stamp(edges.UNWOUND)

    def publish(self) -> int:
        """Numbers the newest step and publishes every edge so far; returns their absolute count."""
        j = self.nxt()
        self.codes[j & self.mask] = edges.STEP_NUMBER
        self.stamps[j & self.mask] = self.num_steps
        self.ring.header[PUBLISHED] = j + 1
        return j + 1

    def tend(self, now: float) -> None:
        """Behind a step's end that is past `due`: keeps house, reads memory, whichever it is time for."""
        billing = self.billing
        since = 0.0 if billing is None else billing.ended()
        if now >= self.house_due:
            self.house_due = now + HOUSE_S if self.num_steps >= _NUM_EARLY else 0.0
            self.tidy()
        if now >= self.memory_due:
            self.read_memory(now)
        self.due = min(self.house_due, self.memory_due)
        if billing is not None:
            self._bill(since)

    def _bill(self, since: float) -> None:
        """What was tended to since then is on the bill; its faults are its own."""
        try:
            self.billing.tended(since)
        except BaseException as error:  # noqa: BLE001  # guard
            self.guard.fault(BILL, error)
        self.due = min(self.due, self.billing.due)

    def spend(self, signal: str, seconds: float) -> None:
        """An optional signal has cost so much on the training thread."""
        self.spent[signal] = self.spent.get(signal, 0.0) + seconds

    def tend_soon(self) -> None:
        """The next step's end keeps house."""
        self.due = self.house_due = 0.0

    def keep_house(self) -> None:
        """Ten times a second, right behind a step's end: numbers it, seals whole blocks, looks for late modules."""
        end = self.publish()
        self.ring.seal(end)
        for look in self.late_looks:
            look()
        self.tell_unrecorded()
        if self.ring.header[STOP]:
            self.stop()

    def tidy(self) -> None:
        """Keeps house; its faults are its own, not those of the hook that found it due."""
        try:
            self.keep_house()
        except BaseException as error:  # noqa: BLE001  # guard
            self.guard.fault(HOUSE, error)

    def adopt(self) -> bool:
        """The calling thread starts a step: its edges count from now on, unless another thread is inside a step."""
        if self.owner is None or self.in_step:
            return False
        self.owner = get_ident()
        return True

    def say_once(self, topic: str, line: str) -> None:
        """A line for the user, once a run and topic."""
        if topic not in self.said:
            self.said.add(topic)
            say(line)

    def region_code(self, name: str) -> int:
        """The code of a region; 0 when there are already 16 names, said once."""
        code = self.regions.get(name)
        if code is None:
            if len(self.regions) >= MAX_REGIONS:
                self.say_once(
                    "regions",
                    f"region('{region_name(REGION_PREFIX + name)}') and further new names are not recorded: "
                    f"a run has at most {MAX_REGIONS} region names.",
                )
                return 0  # and the name is not kept: there may be one a step
            code = edges.FIRST_REGION + len(self.regions)
            self.ring.send(RegionName(len(self.regions), name))
            self.regions[name] = code
        return code

    def skip(self, function: object, *, whole: bool = False, awaits: bool = True) -> None:
        """Keeps the compiler out of a function of ours that can run under a compiled frame.

        Args:
            function: The function.
            whole: And out of whatever it calls, where this torch knows that; nothing of the user's may be among it.
            awaits: Whether the compiler's import is waited for; else it hears of the function when it is seen.
        """
        code: CodeType = function.__code__  # type: ignore[attr-defined]
        if self.skip_code is not None:
            self.skip_code(code)
            if whole:
                skip_below(code)
        else:
            if (code, whole) not in self.skipped:  # a closure that is made anew has the same code
                self.skipped.append((code, whole))
            if awaits:
                self.await_compiler()

    def arrived(self) -> None:
        """torch._dynamo is loaded: it hears of our functions, and our hooks of it."""
        self.skip_code = sys.modules["torch._dynamo.eval_frame"].skip_code
        for code, whole in self.skipped:
            self.skip_code(code)
            if whole:
                skip_below(code)
        self.skipped.clear()
        for act in self.on_arrival:
            try:
                act()
            except BaseException as error:  # noqa: BLE001  # guard
                self.guard.fault("compile", error)

    def compiles(self) -> None:
        """Somebody is about to compile: what would stand in the way goes, for good."""
        if not self.has_compiled:
            self.has_compiled = True
            for act in self.on_compiled:
                act()

    def tell_unrecorded(self) -> None:
        """Tells the reader how many steps were passed over, where that is news."""
        if self.unrecorded != self._told_unrecorded:
            self._told_unrecorded = self.unrecorded
            self.ring.send(self.unrecorded)

    def tell(self, *, watched: tuple[str, ...] = (), unseen: Mapping[str, str] = MappingProxyType({})) -> None:
        """Tells the reader which phases are watched, and which are not and why; what is known already stays."""
        self.watched = tuple(dict.fromkeys((*self.watched, *watched)))
        self.unseen = {phase: why for phase, why in self.unseen.items() if phase not in watched}
        self.unseen.update(unseen)
        if self.is_installing:
            return  # the first word must know whether steps are inferred
        self.ring.send(
            Watching(self.watched, self.unseen, self.total_steps, self.infers, self.clock_used, self.clock_note)
        )


def skip_below(code: CodeType) -> None:
    """Torch 2.7 and newer know frames below which nothing is compiled."""
    frames = sys.modules.get("torch._C._dynamo.eval_frame")
    action, strategy = getattr(frames, "_FrameAction", None), getattr(frames, "_FrameExecStrategy", None)
    set_strategy = getattr(frames, "set_code_exec_strategy", None)
    if action is not None and strategy is not None and set_strategy is not None:
        set_strategy(code, strategy(action.SKIP, action.SKIP))


def _nobody_waits() -> None:
    """No session stands behind this pen."""


def _no_memory(_: float) -> None:
    """There is no allocator to read."""


def no_matter(_: object) -> None:
    """Nobody wants to know."""


def no_update(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
    """No step is inferred from it."""


def _no_wrappers(_: object) -> tuple[Any, ...]:
    """Nothing is compiled."""
    return ()


def _no_memory_stop() -> None:
    """Nothing stops at a step."""
