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
    #: A cost has its place in some steps where these, in a row, hold nearly all of it, ...
    spell_share: float = 0.80
    #: ... and are at most half of the run: of one that is everywhere four fifths of the steps hold four fifths.
    most_of_steps: float = 0.50

    #: Of windows of 20 units (between two syncs) 0 of 276 named a wrong rank and 106 of 108 the right one at 5 ms; of
    #: 10 units the chance of being last cannot be told from luck.
    min_units: int = 20
    #: At 3 % no healthy run of 54 named a rank, 5 % lost the delays of 2 ms; the lower end of the interval is compared.
    straggler_share: float = 0.03
    #: Being last that often by luck must be this rare, over all ranks; 0.05 to 1e-6 gave the same names.
    last_by_luck: float = 1e-4
    #: Ranks that are late in turn, or by luck, share what could be won; one that validates alone held 97 % of it.
    gain_of_one: float = 0.80
    #: A tenth of the time is worth a word to whoever lets one rank evaluate or save alone ...
    alone_share: float = 0.10
    #: It is not alone in it where the others do a fifth as much.
    not_alone_share: float = 0.2
    #: And what nobody named must have come twice: once is an event.
    min_spells: int = 2
    #: Ranks that are behind together are so by about as much; beside one that is late the next is so by noise.
    alike_share: float = 0.50
    #: Half more than the next is a difference that noise does not make: worth looking there first.
    clearly_more: float = 1.5
    #: Of two ranks in turn one holds half of the waits and some more by noise; one that is late alone, nearly all.
    gain_of_pair: float = 0.75
    #: A true cause at 20 ms covers 0.9 and more of what its rank does more; the best phase beside a busy core 0.49.
    excess_coverage: float = 0.6
    #: Two phases are named where the rank takes twice as long in both as the others, which no slower core does, ...
    its_own_times: float = 2.0
    #: ... and is last nearly always: so was a rank with 20 ms in forward and 10 ms beside it, in 232 of 239 units.
    always_last: float = 0.8
    #: Healthy runs lose up to 6 % to whoever happens to be last, 9 beside other jobs; delays of 5 ms in turn 15 to 21.
    rotating_share: float = 0.12
    #: Two healthy ranks with steps of 7 ms beside other jobs lost 16 to 18 % to one another; one of 30 ms in turn, 76.
    rotating_share_of_pair: float = 0.25
    #: More than half of the ranks come last in turn; one or two that are always last are no rotation.
    culprits_share: float = 0.5
    #: Data length moves forward, backward and the tokens together; a pause moves one of them.
    moves_together: float = 0.5
    #: Where ranks outnumber cores gloo itself takes 28 % of a healthy step; the run that suffers from it had 57 %.
    comm_share_of_crowded_host: float = 0.40
    #: Elsewhere a fifth of the time is what better buckets or fewer reductions can be worth a look for (not measured).
    comm_share: float = 0.20
    #: A fifth of the time in waits for one another is no step of which to say that all is well, whoever is to blame.
    waiting_share: float = 0.20
    #: A turn for a core takes milliseconds and comes in most steps; longer waits have another reason (not measured) ...
    max_turn_ns: int = 100_000_000
    #: ... and there is none to wait for unless the host's cores are taken.
    full_host_percent: float = 85.0
    #: A few steps that do not line up are an odd batch; a twentieth of them is another kind of run.
    unaligned_share: float = 0.05
    #: Syncs end together within 5 ms in 95 % of the units; half a unit apart, in half of them, is a shift by a step.
    apart_share: float = 0.5

    #: Every thread waits for its core now and then; from a tenth of the time on the machine is part of the answer ...
    core_wait_share: float = 0.10
    #: ... and where it holds half of what a finding costs, the script cannot be told to hold the larger part.
    explained_share: float = 0.50
    #: A thread loses its core in some steps; what the typical step has to half the mean's extent comes with every step.
    typical_of_mean: float = 0.50

    #: A batch from a worker is pickled, sent and put together again: on a busy host of 2 cores batches of 0.2 to 0.4 ms
    #: came 3 to 6 ms apart from one worker. Under a millisecond a worker costs more than it saves.
    worth_a_worker_ns: int = 1_000_000
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
