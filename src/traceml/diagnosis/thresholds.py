"""Holds every number a rule compares, each with the sentence that defends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Thresholds:
    """The limits of all rules: a first calibration. Change one with data, here and in the design."""

    #: A mean over fewer steps is decided by whichever of them was odd.
    min_steady_steps: int = 8
    #: Of windows of 20 steps of several ranks none named a wrong rank, of those of 10 a few missed the right one.
    min_steady_steps_of_ranks: int = 20

    #: Under half a millisecond a step nothing a user changes in the loop shows above the noise of the loop itself.
    min_cost_ns: int = 500_000

    #: A tenth of the time is what better loading can be worth the change for.
    input_share: float = 0.10
    #: A wait is one that can be told from fetching a batch that is ready: a twentieth of a typical step ...
    wait_share_of_typical: float = 0.05
    #: ... and more than a hand-over from a worker takes, which is a few hundredths of a millisecond.
    min_wait_ns: int = 100_000
    #: One slow worker of three makes every third step wait; workers that start at each epoch make one in hundreds.
    waiting_steps_share: float = 0.20

    #: A tenth of the time is what pinned memory or a copy beside the step can be worth the change for.
    h2d_share: float = 0.10

    #: A device that comes to a step's end within a fifth of a millisecond of the host had no work left to speak of ...
    near_ns: int = 200_000
    #: ... and where that is so in half of the steps, it is the rule and not the step after an evaluation.
    near_steps_share: float = 0.50
    #: A blocking `.item()` a step empties the queue too, and costs little: from 15 % of idle time on it is felt.
    host_idle_share: float = 0.15
    #: A model whose work is hardly seen may run by other means (replays of a CUDA graph): no rest is surely to blame.
    seen_compute_share: float = 0.05

    #: Many small things around the model are normal; a fifth of the time is not.
    overhead_share: float = 0.20

    #: With 70 % in forward, backward and optimizer, halving all the rest would give less than a sixth.
    compute_share: float = 0.70

    #: From three tenths of the period a fix is felt by everyone (1.4 times as fast) ...
    critical_share: float = 0.30
    #: ... when enough steps stand behind it; 20 is where names of ranks became safe as well.
    critical_steps: int = 20
    #: A tenth of the time is worth a look.
    warning_share: float = 0.10

    #: "Of each step" is said only when the median step has at least half of the mean: a few long ones do not make each.
    each_step_share: float = 0.50
    #: "Most of it in n steps" is said only when those steps hold at least this share of it.
    most_share: float = 0.50

    #: More workers than this on one host are seldom what is missing; the storage or the decoding is.
    max_workers_advised: int = 16

    #: A quota that stops the run in every tenth sample costs about as much as a warning's share of the time.
    throttled_share: float = 0.10
    #: Short peaks over the allowed cores are harmless; half of the time is not.
    overrun_share: float = 0.50
    #: A device that is busy for less than three tenths of the time mostly waits for something.
    device_idle_percent: float = 30.0
    #: The kernel kills at 100 %; the last tenth goes fast.
    host_memory_share: float = 0.90
    #: A share of fewer samples (one a second) is a guess.
    min_samples: int = 5


LIMITS: Final = Thresholds()
