"""Names the phases a step is divided into, their order and what people call them."""

from __future__ import annotations

from typing import Final

from traceml.schema import units

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


#: What the faces call other things than regions, beside the labels.
_TAKEN: Final = frozenset({*LABELS.values(), "other", "all else", "step", "epoch start", "rare waits for data"})
_REGION: Final = "region "
_MAX_NAME: Final = 40


def label(phase: str) -> str:
    """What people call a phase; a region by the user's own name, behind `region` where that means something else."""
    if phase.startswith(REGION_PREFIX):
        name = region_name(phase)
        is_taken = name.strip().casefold() in _TAKEN or name.startswith(_REGION)
        return _REGION + name if is_taken else name
    return LABELS[phase]


def region_name(phase: str) -> str:
    """The user's own name in `region:<name>` as a sentence can hold it: clean, at most 40 characters, `""` if empty."""
    name = units.clean(phase[len(REGION_PREFIX) :])
    if len(name) > _MAX_NAME:
        name = f"{name[: _MAX_NAME // 2]}…{name[1 - _MAX_NAME // 2 :]}"
    return name if name.strip() else f'"{name}"'
