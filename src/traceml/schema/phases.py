"""Names the phases a step is divided into, their order and what people call them."""

from __future__ import annotations

from typing import Final

INPUT: Final = "input"
H2D: Final = "h2d"
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
SYNC: Final = "sync"
OPTIMIZER: Final = "optimizer"
EVAL: Final = "eval"
CHECKPOINT: Final = "checkpoint"
COMPILE: Final = "compile"
GC: Final = "gc"
IN_STEP: Final = "in_step"
BETWEEN_STEPS: Final = "between_steps"

#: The fixed phases, in the order of every face, table and tuple of phase times.
PHASES: Final[tuple[str, ...]] = (
    INPUT,
    H2D,
    FORWARD,
    BACKWARD,
    SYNC,
    OPTIMIZER,
    EVAL,
    CHECKPOINT,
    COMPILE,
    GC,
    IN_STEP,
    BETWEEN_STEPS,
)
PHASE_INDEX: Final[dict[str, int]] = {name: index for index, name in enumerate(PHASES)}

#: Phases that are null when no edge of them was ever seen: nobody may take their absence for zero.
ABSENT_WHEN_UNSEEN: Final = frozenset({INPUT, H2D, FORWARD, BACKWARD, SYNC, OPTIMIZER, COMPILE})

REGION_PREFIX: Final = "region:"
MAX_REGIONS: Final = 16

#: What people read instead of the key.
LABELS: Final[dict[str, str]] = {
    INPUT: "input",
    H2D: "host to device",
    FORWARD: "forward",
    BACKWARD: "backward",
    SYNC: "waiting for ranks",
    OPTIMIZER: "optimizer",
    EVAL: "eval",
    CHECKPOINT: "checkpoint",
    COMPILE: "compile",
    GC: "garbage collection",
    IN_STEP: "rest in the step",
    BETWEEN_STEPS: "between steps",
}


def label(phase: str) -> str:
    """What people call a phase; a region is called by the user's own name."""
    if phase.startswith(REGION_PREFIX):
        return phase[len(REGION_PREFIX) :]
    return LABELS[phase]
