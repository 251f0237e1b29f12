"""Trains in short blocks, in turn bare, with hooks that do nothing, and recorded; prints what each step cost as JSON.

Hooks that do nothing are the floor of any recorder in Python: what being called costs. They tell how slow a machine is.
Under torchrun every rank takes the same blocks at the same time, its model in DDP over gloo; rank 0 prints.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from pathlib import Path
from threading import get_ident
from typing import Any, Callable, ContextManager, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter
from training import Trace, Training, bare

from traceml.recorder.hooks.stand import SLOT
from traceml.recorder.session import Session
from traceml.recorder.step import trace_step

NUM_WARM = 80


@contextlib.contextmanager
def nothing() -> Iterator[Trace]:
    """The bare script."""
    yield bare


@contextlib.contextmanager
def interceptions() -> Iterator[Trace]:  # noqa: C901  # five small hooks
    """What a recorder stands in: a fetch, the model's call, backward, the optimizer's step, `trace_step`; no more."""
    autograd: Any = torch.autograd
    owner, real, run = get_ident(), _BaseDataLoaderIter.__next__, autograd._engine_run_backward  # noqa: SLF001

    def __next__(self: Any) -> Any:  # noqa: N807  # stands for the method
        return real(self) if get_ident() == owner else None

    def engine(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs) if get_ident() == owner else None

    def hook(*_: Any) -> None:
        pass

    class Call:
        def __init__(self, model: Any) -> None:
            self.inner = model._call_impl  # noqa: SLF001  # what Module.__call__ calls

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.inner(*args, **kwargs) if get_ident() == owner else None

    class Step:
        __slots__ = ("model",)

        def __init__(self, model: Any) -> None:
            self.model = model

        def __enter__(self) -> Step:
            names = self.model.__dict__
            if SLOT not in names:
                names[SLOT] = Call(self.model)
                seen.append(names)
            return self

        def __exit__(self, *_: object) -> None:
            pass

    seen: list[dict[str, Any]] = []
    _BaseDataLoaderIter.__next__ = __next__
    autograd._engine_run_backward = engine  # noqa: SLF001
    handles = [register_optimizer_step_pre_hook(hook), register_optimizer_step_post_hook(hook)]
    try:
        yield Step
    finally:
        _BaseDataLoaderIter.__next__ = real
        autograd._engine_run_backward = run  # noqa: SLF001
        for handle in handles:
            handle.remove()
        for names in seen:
            del names[SLOT]


@contextlib.contextmanager
def recorded(trace: Trace, *, infer: bool) -> Iterator[Trace]:
    """Everything on; nobody reads the ring meanwhile."""
    with tempfile.TemporaryDirectory(prefix="traceml-bench-") as folder:
        session = Session(Path(folder), first=False, infer=infer)
        try:
            yield trace
        finally:
            session.close("shutdown")


VARIANTS: dict[str, Callable[[], ContextManager[Trace]]] = {
    "bare": nothing,
    "interceptions": interceptions,
    "traced": lambda: recorded(trace_step, infer=False),
    "zero code": lambda: recorded(bare, infer=True),
}


def main() -> None:
    """Prints, by variant, a list of rounds: the CPU of the thread in us a step, one a slice, and each step's wall."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    training = Training()
    rank = os.environ.get("RANK")
    if rank is not None:
        dist.init_process_group("gloo")
        training.model = DistributedDataParallel(training.model)
    training.run(NUM_WARM, bare)
    found: dict[str, list[dict[str, list[float]]]] = {name: [] for name in VARIANTS}
    for number in range(args.rounds):
        order = list(VARIANTS)
        for name in (*order[number % len(order) :], *order[: number % len(order)]):
            with VARIANTS[name]() as trace:
                training.run(NUM_WARM, trace)
                found[name].append(training.run(args.steps, trace))
    if rank is not None:
        dist.barrier()
        dist.destroy_process_group()
    if rank in {None, "0"}:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
