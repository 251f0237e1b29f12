"""Trains the same training once bare and then once a fault: something of TraceML's own raises, from outside.

Prints a line of JSON a case: its name, what the training computed, and the run's folder; the case's name on stderr, too.
"""

import contextlib
import functools
import gc
import importlib
import io
import itertools
import json
import operator
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.utils.data import DataLoader, TensorDataset

import traceml
from traceml import part
from traceml.recorder import arrival, guard, pen, session, step
from traceml.wire import ring

torch.set_num_threads(1)
HOUSE_S = pen.HOUSE_S
HOOKS = ("loader", "forward", "backward", "optimizer", "checkpoint", "collections")


class Injected(RuntimeError):
    """A fault of TraceML's own."""


def train(num_steps=8):
    """Everything that is watched, and an exception of the user's own; returns all that came of it."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(torch.randn(num_steps * 4, 8)), batch_size=4, shuffle=True)
    losses, file = [], io.BytesIO()
    for _ in range(4):
        for (x,) in loader:
            with traceml.trace_step(model):
                optimizer.zero_grad()
                with traceml.region("loss"):
                    loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                gc.collect(0)
                traceml.count(samples=len(x))
            losses.append(loss.item())
        with torch.no_grad():
            losses.append(model(torch.ones(4, 8)).sum().item())
        torch.save(model.state_dict(), file)
    try:
        with traceml.trace_step(model):
            model(torch.ones(1, 9))
    except RuntimeError as error:
        losses.append(str(error))
    return [losses, [p.tolist() for p in model.parameters()], torch.get_rng_state().sum().item(), len(file.getvalue())]


@contextlib.contextmanager
def replaced(owner, name, made):
    """`owner.name` is `made(what it was)` for a while."""
    found = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, made(found))
    try:
        yield
    finally:
        setattr(owner, name, found)


def raises(_):
    def fail(*_args, **_kwargs):
        raise Injected("injected")

    return fail


def broken_clock(module, when):
    """The pen's clock raises where `module` reads it: at each call, at each second one, or at the second only."""

    def made(init):
        def __init__(self, *args, **kwargs):
            init(self, *args, **kwargs)
            real, calls = self.clock, [0]

            def clock():
                frame = sys._getframe(1)
                while frame.f_globals["__name__"] == pen.__name__:
                    frame = frame.f_back
                if frame.f_globals["__name__"] == module:
                    calls[0] += 1
                    if when == "always" or (when == "close" and not calls[0] % 2) or (when == "once" and calls[0] == 2):
                        raise Injected("injected")
                return real()

            self.clock = clock

        return __init__

    return replaced(pen.Pen, "__init__", made)


def broken_callback(when):
    """As `broken_clock`, for the callback of collections: what a deeper Python frame raises there is a signal handler's."""
    divisors = {
        "always": itertools.repeat(0.0),
        "close": itertools.cycle((1.0, 0.0)),
        "once": itertools.chain((1.0, 0.0), itertools.repeat(1.0)),
    }
    install = hooks("collections").install

    def broken(pen):
        real = pen.clock
        pen.clock = functools.partial(next, map(operator.truediv, iter(real, None), divisors[when]))
        try:
            return install(pen)
        finally:
            pen.clock = real

    return replaced_item(session._HOOKS, "gc", broken)


def hooks(name):
    return importlib.import_module(f"traceml.recorder.hooks.{name}")


def without_removal(register):
    """Takes off whatever else there is, but backward's hook cannot be."""
    return lambda self, hook, remove: register(self, hook, raises(remove) if hook == "backward" else remove)


def late(owner, name, begin=4):
    """A method that fails from its `begin`-th call on: not while the session opens."""

    def made(real):
        calls = [0]

        def fail(*args, **kwargs):
            calls[0] += 1
            if calls[0] >= begin:
                raise Injected("injected")
            return real(*args, **kwargs)

        return fail

    return replaced(owner, name, made)


def cases():
    yield "none", contextlib.nullcontext()
    for name in HOOKS:
        for when in ("always", "close", "once"):
            is_callback = name == "collections"
            fault = broken_callback(when) if is_callback else broken_clock(f"traceml.recorder.hooks.{name}", when)
            yield f"{name} {when}", fault
    for when in ("always", "close", "once"):
        yield f"step {when}", broken_clock("traceml.recorder.step", when)
    for name in HOOKS:
        key, install = next((k, v) for k, v in session._HOOKS.items() if v.__module__.endswith(f".{name}"))
        yield f"install {name}", replaced_item(session._HOOKS, key, raises(install))
    yield "settings of a loader", replaced(hooks("loader"), "_settings_of", raises)
    yield "serial of an iterator", replaced(hooks("loader").Loaders, "started", raises)
    yield "samples of a batch", replaced(hooks("loader").Loaders, "_look_first", raises)
    yield "attaching", replaced(step, "attach", raises)
    yield "looking for dynamo", replaced(arrival.Arrival, "look", raises)
    yield "keeping house", replaced(pen.Pen, "keep_house", raises)
    yield "sending", late(ring.RingWriter, "send")
    yield "identity", replaced(session, "identify", raises)
    yield "ring", replaced(session, "RingWriter", raises)
    yield "taking a hook off", replaced(guard.Guard, "register", without_removal)


@contextlib.contextmanager
def replaced_item(mapping, key, value):
    found, mapping[key] = mapping[key], value
    try:
        yield
    finally:
        mapping[key] = found


def attempt():
    try:
        traceml.init()
        found = train()
        traceml.shutdown()
    except Exception as error:
        return repr(error)
    return found


def main():
    def tell(name, found, folder):
        print(json.dumps({"case": name, "found": found, "folder": folder}), flush=True)

    step.begin_session(None)
    tell("bare", train(), None)
    for name, fault in cases():
        print(f"== {name}", file=sys.stderr, flush=True)
        before = part.current
        with fault:
            pen.HOUSE_S = 0.0 if name == "keeping house" else HOUSE_S
            found = attempt()
        tell(name, found, str(part.current.folder.absolute()) if part.current is not before else None)


main()
