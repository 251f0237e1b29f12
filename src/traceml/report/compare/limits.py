"""Holds every number a comparison is judged by, each with the sentence that defends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class CompareLimits:
    """The limits of a comparison: a first calibration. Change one with data (`make compare-budget`)."""

    #: Under a percent nobody changes code back; a proven difference below it is still SAME.
    change_share: float = 0.01
    #: "The same" means within 3 %: about what a careful single pair can show on a quiet machine.
    same_share: float = 0.03

    #: Two runs of one script differ by up to 2 % where nothing else runs: memory layout, clocks, placement.
    drift_share: float = 0.02
    #: A step that is the CPU's own work feels every other task; one that sleeps or waits for a device does not.
    drift_of_cpu_share: float = 0.02
    #: And the more, the more of the machine others took while it ran.
    drift_of_neighbours_share: float = 0.10
    #: At least half of the steps wait as long as the median one waits for a core, so that waits twice the mean's share
    #: at most, by the kernel's count; what is below the base is in it. Of 90 identical pairs, with waits of 0 to 50 %,
    #: none differed by more.
    most_waits_of_median: float = 2.0
    #: Who waited for a core a quarter of the time was starved: such runs of one script differed up to five-fold. One
    #: run a side says nothing then.
    starved_wait_share: float = 0.25
    #: A training that waited for a core for less than a hundredth of its time met a free one: so did its workers.
    contended_from: float = 0.01
    #: Where the kernel counts no waits: others that fill the host make a step that sleeps wait for its turn too, from
    #: 70 % on, fully at 95 %. Of 56 pairs there none differed by more than 1.4 times (p95 - p50) / p50 of its steps.
    full_host_from: float = 0.70
    full_host_at: float = 0.95
    drift_of_spread: float = 1.4
    #: And a run whose slowest steps take half as long again beside others counts as starved there.
    starved_from: float = 0.60
    starved_spread: float = 0.50
    #: Nothing is known of a run too short to be sampled: it is taken for the CPU's own work beside some others.
    unknown_neighbours_share: float = 0.25
    #: A run that wandered by itself will have wandered elsewhere the next time: of simulated pairs that wander over
    #: half a run, 5 of 60 are called a change with three standard deviations of that, 10 of 60 with two.
    drift_of_own_spreads: float = 3.0
    #: The same training on two machines of one kind differs by 3 to 10 %.
    drift_of_hosts_share: float = 0.08

    #: Fewer steady steps are decided by whichever of them was odd.
    min_steady_steps: int = 8
    #: A last batch that is smaller moves the samples a step by less than a tenth.
    batch_share: float = 0.10
    #: And an epoch of two batches, of which the last is nearly empty, by half.
    short_batch_share: float = 0.5

    #: A phase of some microseconds doubles for no reason: half a percent of the step is never called moved.
    phase_share: float = 0.005
    #: All phases that matter, at least three of 5 % and together four fifths of the step, ...
    alike_phase_share: float = 0.05
    alike_num_phases: int = 3
    alike_cover_share: float = 0.8
    #: ... changed alike when each is within a quarter of the step's change, or within its interval of less than half.
    alike_within: float = 0.25
    alike_interval: float = 0.5
    #: One phase of a pair changed by itself where the steps wait rather than compute (a CPU's own work drifts phase by
    #: phase), had their cores, at least two other phases tell what all share, and it leaves ten times the usual stray
    #: (0.1 % of the step), three times what it and the others strayed in this pair.
    specific_cpu_share: float = 0.35
    specific_wait_share: float = 0.02
    specific_num_phases: int = 3
    specific_step_share: float = 0.01
    specific_strays: float = 3.0
    #: Of repeats: by more than four and a half standard errors. With five a side and four phases one of 150 identical
    #: groups has such a phase by chance.
    specific_errors: float = 4.5
    #: All others together moved by less than a third of that: else it may be they that changed, and not the phase.
    specific_common: float = 0.33
    #: Of three a side one odd run moves the middle of the others by as much as a change; of four it does not.
    specific_num_repeats: int = 4
    #: Where no phase changed by itself: identical sleeping runs one after the other differed by up to 4.7 % as a whole.
    shared_drift_share: float = 0.05
    #: A phase is named for the change of a typical step when it holds most of it.
    culprit_share: float = 0.6
    #: Time has moved between phases, in a step that is the same, from where one of them would show as a change.
    moved_share: float = 0.03
    #: "All steps together" rests on a few long ones: asked for more certainty than the typical step.
    mean_confidence: float = 0.99


LIMITS: Final = CompareLimits()
