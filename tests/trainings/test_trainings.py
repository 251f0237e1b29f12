"""Shows sixteen real trainings bit-identical with and without TraceML, each with its right steps and phases."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Mapping, Optional

import pytest

from tests.trainings import ways

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.training, pytest.mark.torch]
SCRIPTS = ways.HERE / "scripts"
LOADER = ("input", "forward", "backward", "optimizer")
BY_HAND = ("forward", "backward", "optimizer")


@dataclass(frozen=True)
class Expected:
    """What the summary has to say of a training."""

    steps: int
    seen: tuple[str, ...]  # in at least one steady step
    absent: tuple[str, ...] = ()  # null, not 0
    most: tuple[str, ...] = ("forward", "backward", "optimizer")  # together at least `share` percent
    share: float = 25.0
    updates: Optional[int] = None  # optimizer steps; None: one a step
    micro_batches: Optional[int] = None  # None: one a step


@dataclass(frozen=True)
class Training:
    """One script, and what is expected of it traced and with zero code."""

    name: str
    traced: Expected
    zero_code: Expected = field(init=False)
    without_code: Optional[Expected] = None  # where it differs
    may_be_unsure: bool = False  # with zero code: an explicit "unsure" is right, too
    since: tuple[int, int] = (1, 12)  # what the script itself asks of torch

    def __post_init__(self) -> None:
        object.__setattr__(self, "zero_code", self.without_code or self.traced)


TRAININGS = (
    Training("cnn", Expected(24, LOADER, most=("forward", "backward"), share=45)),
    Training(
        "char_gpt",
        Expected(15, (*BY_HAND, "eval"), absent=("input",), most=("forward", "backward"), share=45, micro_batches=60),
        since=(2, 0),
    ),
    Training(
        "truncated_bptt",
        Expected(
            20,
            ("forward", "backward"),
            absent=("input", "optimizer"),
            most=("forward", "backward"),
            share=45,
            updates=0,
        ),
        may_be_unsure=True,  # no optimizer tells where a step ends
    ),
    Training("dcgan", Expected(15, LOADER, most=("forward", "backward"), share=45, updates=30)),
    Training("dqn", Expected(30, (*BY_HAND, "eval"), absent=("input",))),
    Training(
        "ppo",
        Expected(32, ("backward", "optimizer"), absent=("input", "forward"), most=("backward", "optimizer"), share=20),
        # The two networks are called and trained: they are seen, and the rollouts are forwards without gradients.
        without_code=Expected(32, (*BY_HAND, "eval"), absent=("input",)),
    ),
    Training(
        "maml", Expected(15, BY_HAND, absent=("input",), most=("forward", "backward"), micro_batches=30), since=(2, 0)
    ),
    Training(
        "lbfgs",
        Expected(12, BY_HAND, absent=("input",), most=("forward", "backward"), share=45, micro_batches=48),
    ),
    Training("ema", Expected(25, LOADER)),
    Training("amp", Expected(20, LOADER, updates=18), since=(2, 3)),
    Training("sam", Expected(16, LOADER)),
    Training(
        "backward_optimizer", Expected(20, LOADER, most=("backward", "optimizer"), share=40, updates=120), since=(2, 1)
    ),
    Training("gradient_penalty", Expected(20, LOADER, most=("forward", "backward"), updates=24), may_be_unsure=True),
    Training("neural_ode", Expected(12, LOADER, most=("backward",), share=40)),
    Training(
        "forward_forward",
        Expected(16, ("input", "backward", "optimizer"), most=("backward", "optimizer"), share=20, updates=32),
        may_be_unsure=True,  # its layers are never called, only their methods are
    ),
    Training("callback_eval", Expected(30, (*LOADER, "eval"))),
)


VERSION = tuple(int(number) for number in version("torch").split("+")[0].split(".")[:2])
EACH = pytest.mark.parametrize(
    "training",
    [
        pytest.param(
            one,
            id=one.name,
            marks=pytest.mark.skipif(one.since > VERSION, reason=f"the script needs torch {one.since}"),
        )
        for one in TRAININGS
    ],
)


def wrong(summary: Mapping[str, Any], want: Expected) -> list[str]:
    """What the summary says otherwise, a sentence each."""
    run = summary["run"]
    numbers = {
        "steps": want.steps,
        "failed_steps": 0,
        "optimizer_steps": want.steps if want.updates is None else want.updates,
        "micro_batches": want.steps if want.micro_batches is None else want.micro_batches,
    }
    found = [f"{name} {run[name]}, not {number}" for name, number in numbers.items() if run[name] != number]
    found += [f"{name} was not seen" for name in want.seen if ways.phase_of(summary, name)[1] == 0]
    found += [f"{name} is not absent" for name in want.absent if ways.phase_of(summary, name)[0] >= 0]
    share = sum(max(0.0, ways.phase_of(summary, name)[0]) for name in want.most)
    if share < want.share:
        found.append(f"{' + '.join(want.most)} are {share:.0f} %, not {want.share:.0f}")
    return found


@EACH
def test_a_traced_training_is_bit_identical_and_its_steps_and_phases_are_right(
    training: Training, tmp_path: Path
) -> None:
    script = SCRIPTS / f"{training.name}.py"
    alone = ways.bare(script)
    result = ways.traced(tmp_path, script)

    assert (alone.code, alone.stderr) == (0, "")
    assert (result.code, result.stdout.decode()) == (alone.code, alone.stdout.decode())
    assert wrong(result.summary, training.traced) == []
    assert result.summary["coverage"]["faults"] == []
    assert not result.summary["run"]["inferred"]


@pytest.mark.skipif(not ways.KNOWS_ZERO_CODE, reason=ways.WHY_PENDING)
@EACH
def test_an_untouched_training_is_bit_identical_and_its_steps_are_right_or_said_to_be_unsure(
    training: Training, tmp_path: Path
) -> None:
    script = SCRIPTS / f"{training.name}.py"
    alone = ways.bare(script)
    result = ways.zero_code(tmp_path, script)
    summary = result.summary
    is_unsure = any("unsure" in note for note in summary["coverage"]["notes"])

    assert (result.code, result.stdout.decode()) == (alone.code, alone.stdout.decode())
    assert summary["coverage"]["faults"] == []
    assert summary["run"]["inferred"]
    if is_unsure:
        assert training.may_be_unsure
        assert summary["step_time"]["diagnosis"] == "INSUFFICIENT_DATA"
    else:
        assert wrong(summary, training.zero_code) == []


def test_every_script_has_an_expectation_and_every_expectation_a_script() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.py")} - {"harness"}

    assert scripts == {training.name for training in TRAININGS}
