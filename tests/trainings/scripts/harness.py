"""Gives each training its `step` and its last words; a bare run, without TRACED, never imports traceml."""

import contextlib
import hashlib
import os
import random
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: the same sums on any machine

import torch

torch.set_num_threads(1)
torch.manual_seed(1)
random.seed(1)

if os.environ.get("TRACED"):
    import traceml

    traceml.init()
    step = traceml.trace_step
else:

    def step(*models):
        return contextlib.nullcontext()


def finish(losses, *modules):
    """Prints all that a training must not owe to who watches it: losses, parameters and buffers, random states."""
    if not os.environ.get("TRACED") and "TRACEML_RUN" not in os.environ:
        assert "traceml" not in sys.modules
    for loss in losses:
        print("loss", repr(float(loss)))
    states = [module.state_dict() for module in modules]
    print("parameters", digest([(name, t.tolist()) for state in states for name, t in state.items()]))
    print("torch random", digest(torch.get_rng_state().tolist()))
    print("python random", digest(random.getstate()))


def digest(value):
    """A short name for exactly this value."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:32]
