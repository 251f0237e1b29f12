"""Runs what people do beside a training, before, during and after the watching, and prints what came of each.

A habit is a function that returns a plain value. One that yields is advanced three times: before `init()`, while it
records, and after `shutdown()`. Bare, without TRACED, there is no watching, and traceml is never imported.
"""

import contextlib
import hashlib
import os
import random
import sys
import threading
import warnings
import zlib

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

torch.set_num_threads(1)
IS_TRACED = bool(os.environ.get("TRACED"))
HABITS = []
num_steps = [0, 0]  # at least, and at most, that have to be in the summary
is_recording = False
is_contended = False  # threads take steps from each other: one step is one step
_depth = threading.local()


def habit(function):
    """Marks a function as one."""
    HABITS.append(function)
    return function


@contextlib.contextmanager
def step(*models):
    """`trace_step`, or nothing; counts the outermost ones, which should be in the summary."""
    if not IS_TRACED:
        yield
        return
    import traceml

    depth = getattr(_depth, "count", 0)
    if is_recording and not depth:
        num_steps[0] += not is_contended
        num_steps[1] += 1
    _depth.count = depth + 1
    try:
        with traceml.trace_step(*models):
            yield
    finally:
        _depth.count = depth


def run():
    """All habits, in three stages; prints one line a habit and how many steps were marked."""
    made = {}
    for function in HABITS:
        made[function] = _Made(function)
        made[function].advance()
    _watch("init")
    for one in made.values():
        one.advance()
    _watch("shutdown")
    for one in made.values():
        one.advance()
        print(f"{one.name}: {one.value!r} {one.warned or ''}".rstrip())
    print(f"steps: {num_steps[0]} to {num_steps[1]}", file=sys.stderr)


def _watch(what):
    global is_recording
    is_recording = what == "init"
    if IS_TRACED:
        import traceml

        getattr(traceml, what)()


class _Made:
    def __init__(self, function):
        self.name, self.value, self.warned = function.__name__, None, []
        self._stages = function
        self._num = 0

    def advance(self):
        """Runs the next stage; what it raises is its value."""
        self._num += 1
        torch.manual_seed(zlib.crc32(f"{self.name}{self._num}".encode()))
        random.seed(self._num)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self._go()
            except Exception as error:
                self.value = f"{type(error).__name__}: {error}"
        self.warned += [f"{w.category.__name__}: {w.message}" for w in caught]

    def _go(self):
        if self._num == 1:
            code = self._stages.__code__
            self._stages = self._stages() if code.co_flags & 0x20 else self._stages
        if hasattr(self._stages, "send"):
            with contextlib.suppress(StopIteration):
                found = next(self._stages)
                self.value = found if found is not None else self.value
        elif self._num == 2:
            self.value = self._stages()


def digest(value):
    """A short name for exactly these numbers."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    elif isinstance(value, nn.Module):
        value = [(name, t.tolist()) for name, t in value.state_dict().items()]
    elif isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()[:24]
    return hashlib.sha256(repr(value).encode()).hexdigest()[:24]


def net():
    """A model of the usual kind."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def train(model, num_steps=3, optimizer=None, inside=None):
    """A few steps; `inside` is called in each, behind the update."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(num_steps):
        with step(model):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
            if inside is not None:
                inside()
        losses.append(loss.item())
    return losses
