"""Counts what is in a batch, by shapes and lengths alone, never by values: samples and tokens, where that is plain.

A batch is the user's: whatever fails or disagrees in it is a batch that cannot be counted, and no fault of anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, Optional

from traceml.recorder.interrupts import let_pass

_MAX_PARTS: Final = 16  # a longer list is one of samples, or of who knows what
_MAX_DEPTH: Final = 3
_NONE: Final[frozenset[int]] = frozenset()


def num_samples(batch: Any) -> Optional[int]:
    """The leading dimension that all parts of a batch have in common; None where they have none, or several.

    A tensor has its own. A tuple, a list or a mapping has what its parts agree on; inside it a list of n things, which
    a collate function left as it was, may be n samples as well. A bare number beside tensors speaks for one sample.
    """
    try:
        sizes = _sizes(batch, 0)
    except Exception as error:  # noqa: BLE001  # a shape that raises, a lazy thing
        let_pass(error)
        return None
    return next(iter(sizes)) if sizes is not None and len(sizes) == 1 else None


def num_tokens(batch: Any) -> Optional[int]:
    """The elements of `input_ids`."""
    try:
        ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
        return int(ids.numel()) if ids is not None and hasattr(ids, "numel") else None
    except Exception as error:  # noqa: BLE001  # as above
        let_pass(error)
        return None


def _sizes(part: Any, depth: int) -> Optional[frozenset[int]]:
    """How many samples a part may hold; None where it says nothing of it."""
    shape = getattr(part, "shape", None)
    if shape is not None:
        return frozenset({int(shape[0])}) if len(shape) else _NONE
    if isinstance(part, (int, float)):
        return _NONE
    if isinstance(part, Mapping):
        return _agreed(part.values(), depth) if len(part) <= _MAX_PARTS else None
    if not isinstance(part, (list, tuple)) or not part or depth >= _MAX_DEPTH:
        return None
    return _sizes_of_list(part, depth)


def _sizes_of_list(part: Any, depth: int) -> Optional[frozenset[int]]:
    kinds = {type(one) for one in islice(part, _MAX_PARTS)}
    are_tensors = all(getattr(one, "shape", None) is not None for one in islice(part, _MAX_PARTS))
    if not depth:
        are_rows = len(part) > _MAX_PARTS or all(issubclass(kind, Mapping) for kind in kinds)
        return None if are_rows else _agreed(part, depth)
    if len(kinds) > 1:
        return _NONE  # a sample of its own: what stands around it are rows, not columns
    within = _agreed(part, depth) if are_tensors and len(part) <= _MAX_PARTS else None
    return frozenset({len(part)}) | (within or _NONE)


def _agreed(parts: Any, depth: int) -> Optional[frozenset[int]]:
    found: Optional[frozenset[int]] = None
    for part in islice(parts, _MAX_PARTS):
        sizes = _sizes(part, depth + 1)
        if sizes is not None:
            found = sizes if found is None else found & sizes
    return found
