"""Judges from intervals alone: slower, faster, the same, both at once, or not to be told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping, Optional

from traceml.analysis.between import Distance, repeats_to_tell
from traceml.report.compare import contract
from traceml.report.compare.limits import CompareLimits

SLOWER = 1
FASTER = -1


@dataclass(frozen=True)
class Margins:
    """What counts as a change, and what as the same: shares (0..1). A margin given by the user is both."""

    change: float
    same: float


def margins_of(margin: Optional[float], limits: CompareLimits) -> Margins:
    """The user's margin, or the house's two."""
    return Margins(limits.change_share, limits.same_share) if margin is None else Margins(margin, margin)


def direction(found: Distance, margins: Margins) -> int:
    """SLOWER or FASTER where the whole interval says so and the estimate is more than the margin; else 0.

    `found` is a distance of logarithms.
    """
    if found.low > 0 and found.estimate > math.log1p(margins.change):
        return SLOWER
    if found.high < 0 and found.estimate < math.log1p(-margins.change):
        return FASTER
    return 0


def mean_direction(typical: Distance, mean: Distance, margins: Margins) -> int:
    """SLOWER or FASTER where all steps together say so and the typical one cannot be what they mean; else 0."""
    is_another = not typical.low <= mean.estimate <= typical.high
    return direction(mean, margins) if is_another else 0


def means_the_same(typical: Distance, mean: Distance, margins: Margins) -> bool:
    """Whether all steps together changed as the typical one did, as far as can be told."""
    return direction(mean, margins) == direction(typical, margins) or mean.low <= typical.estimate <= mean.high


def is_same(found: Distance, margins: Margins) -> bool:
    """Whether the whole interval lies within the margin."""
    return math.log1p(-margins.same) <= found.low and found.high <= math.log1p(margins.same)


def judge(typical: Distance, mean: Distance, moved: Mapping[str, float], margins: Margins) -> str:
    """The verdict.

    Args:
        typical: The distance of the typical steps, logarithms, drift allowed for.
        mean: That of the mean steps; it speaks only where the typical step does not, or where it surely is another.
        moved: The phases that moved beyond doubt, as shares of the step (0..1, negative: less time).
        margins: What counts.
    """
    of_typical, of_mean = direction(typical, margins), mean_direction(typical, mean, margins)
    if of_typical and not means_the_same(typical, mean, margins):
        return contract.MIXED
    if of_typical:
        return contract.REGRESSION if of_typical == SLOWER else contract.IMPROVEMENT
    if of_mean or has_moved_between(moved, margins):
        return contract.MIXED
    return contract.SAME if is_same(typical, margins) else contract.UNDECIDED


def may_be_slower(diagnosis: str, typical: Distance, mean: Distance, margins: Margins) -> bool:
    """Whether it is open that steps take longer by more than the margin: of MIXED, unless all together are faster."""
    if diagnosis != contract.MIXED:
        return diagnosis == contract.UNDECIDED
    if SLOWER in (direction(typical, margins), mean_direction(typical, mean, margins)):
        return False  # it is no question
    return direction(mean, margins) != FASTER and max(typical.high, mean.high) > math.log1p(margins.same)


def has_moved_between(moved: Mapping[str, float], margins: Margins) -> bool:
    """Whether one phase takes so much more, and another so much less, that each would be a change of the step."""
    shares = moved.values()
    return max(shares, default=0.0) > margins.same and min(shares, default=0.0) < -margins.same


def room_to_decide(typical: Distance, margins: Margins) -> Optional[float]:
    """What half the interval must get under for a verdict, if the distance stays; None: the distance is on a margin.

    Whichever is wider: an interval that leaves 0 out, or one that fits within the margin.
    """
    size = abs(typical.estimate)
    change, same = (_bound(share, typical.estimate) for share in (margins.change, margins.same))
    room = [size] if size > change else []
    room += [same - size] if size < same else []
    return max(room, default=None)


def deciding_repeats(room: float, *, spread: float, floor: float) -> Optional[int]:
    """About how many runs a side would decide; None: more than 50, or the floor alone is as wide as the room.

    Args:
        room: What half the interval must get under, of logarithms.
        spread: The standard deviation between repeats, of logarithms.
        floor: What is added to the interval however many repeats there are.
    """
    return repeats_to_tell(room - floor, spread=spread) if room > floor else None


def _bound(share: float, estimate: float) -> float:
    return math.log1p(share) if estimate >= 0 else -math.log1p(-share)
