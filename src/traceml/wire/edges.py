"""Numbers the edges: one code byte says what happened at a stamp, or what a value entry holds.

A phase opens with its code and closes with code + CLOSE. Entries from FIRST_VALUE on hold a number instead of a stamp.
"""

from __future__ import annotations

from typing import Final

from traceml.schema import phases

NEVER: Final = 0  # a slot that was never written

INPUT: Final = 1
H2D: Final = 2
FORWARD: Final = 3
BACKWARD: Final = 4
SYNC: Final = 5
OPTIMIZER: Final = 6
EVAL: Final = 7  # a no-grad forward of a traced model outside a step; of a root where steps are inferred
CHECKPOINT: Final = 8
COMPILE: Final = 9
GC: Final = 10
FORWARD_NO_GRAD: Final = 11  # of a traced model, inside a step: a teacher, or an evaluation by callback
ITERATOR: Final = 12  # DataLoader.__iter__
FIRST_REGION: Final = 32  # 32..47

CLOSE: Final = 64  # code + CLOSE closes that phase
CLOSE_NO_BATCH: Final = 112  # closes INPUT: an exhausting or failing next(), which delivered nothing

RAISED: Final = 113  # an exception leaves the open phase; its close follows
UNWOUND: Final = 114  # an exception came in the middle of a line of ours: nothing is open any more
STEP_BEGIN: Final = 116
STEP_END: Final = 117
STEP_FAILED: Final = 118
RUN_END: Final = 119  # shutdown, or the interpreter's exit

FIRST_VALUE: Final = 128
SERIAL: Final = 128  # the iterator of the fetches that follow: loader number << SERIAL_BITS | epoch
USER_STEP: Final = 129  # trace_step(step=)
SAMPLES: Final = 130  # in the batch just fetched
TOKENS: Final = 131  # likewise
COUNTED_SAMPLES: Final = 132  # count(samples=): the user's own number
COUNTED_TOKENS: Final = 133
STEP_NUMBER: Final = 134  # how many steps are finished: behind a STEP_END now and then, so that a gap can be counted
UPDATED: Final = 135  # behind an optimizer step outside trace_step: optimizer number << UPDATE_BITS | updates so far
SKIPPED: Final = 136  # likewise, behind a GradScaler.step that left its optimizer alone

# Device times come when a step's events are done: behind a later step's end, or update. An index is absolute,
# mod 2^DEVICE_BITS.
DEVICE_FROM: Final = 137  # a chain of device times begins: device << DEVICE_BITS | index of the edge that is its origin
DEVICE_AT: Final = 138  # the chain's next event: (index of its edge - that of the one before) << TIME_BITS | time since
DEVICE_LOST: Final = 139  # so many edges' events are dropped: never done, or a graph was captured; the chain is over
DEVICE_READY: Final = 140  # a poll at the stamp before this entry found the event of the edge with this index done
DEVICE_PENDING: Final = 141  # likewise: not done
STEP_PEAK: Final = 142  # behind a STEP_END: the most bytes that were allocated in that step
STEP_PEAK_RESERVED: Final = 143  # likewise reserved

SERIAL_BITS: Final = 28
UPDATE_BITS: Final = 40
DEVICE_BITS: Final = 40
TIME_BITS: Final = 33
TIME_BIAS: Final = 1 << 32  # other streams may be earlier
TIME_UNIT_NS: Final = 100

#: Which phase the time under an open code belongs to. ITERATOR and FORWARD_NO_GRAD are decided by the reader.
PHASE_OF: Final[dict[int, str]] = {
    INPUT: phases.INPUT,
    H2D: phases.H2D,
    FORWARD: phases.FORWARD,
    BACKWARD: phases.BACKWARD,
    SYNC: phases.SYNC,
    OPTIMIZER: phases.OPTIMIZER,
    EVAL: phases.EVAL,
    CHECKPOINT: phases.CHECKPOINT,
    COMPILE: phases.COMPILE,
    GC: phases.GC,
    FORWARD_NO_GRAD: phases.FORWARD,
    ITERATOR: phases.INPUT,
}

OPENS: Final = frozenset(PHASE_OF) | frozenset(range(FIRST_REGION, FIRST_REGION + phases.MAX_REGIONS))
KNOWN: Final = (
    OPENS
    | frozenset(code + CLOSE for code in OPENS)
    | frozenset({CLOSE_NO_BATCH, RAISED, UNWOUND, STEP_BEGIN, STEP_END, STEP_FAILED, RUN_END})
    | frozenset({SERIAL, USER_STEP, SAMPLES, TOKENS, COUNTED_SAMPLES, COUNTED_TOKENS, STEP_NUMBER, UPDATED, SKIPPED})
    | frozenset({DEVICE_FROM, DEVICE_AT, DEVICE_LOST, DEVICE_READY, DEVICE_PENDING, STEP_PEAK, STEP_PEAK_RESERVED})
)
