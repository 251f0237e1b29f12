"""Says which model a run trains: its class and its size, so that two runs can be told to be of different ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Optional, Sequence

from traceml.schema import units

MAX_MODELS: Final = 8


@dataclass(frozen=True)
class ModelInfo:
    """A traced model, without the wrappers around it."""

    name: str  # of its class
    num_parameters: Optional[int] = None  # None: some are not made yet (lazy modules)


def in_words(models: Sequence[ModelInfo]) -> str:
    """`Net, 1,204,000 parameters`; several in the order in which they were first traced."""
    return " + ".join(
        units.clean(model.name)
        + ("" if model.num_parameters is None else f", {units.count(model.num_parameters)} parameters")
        for model in models
    )
