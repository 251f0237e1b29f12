"""Uses other tools that watch, wrap and count at the same time, and unwraps them in another order."""

import gc
import io
import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings

import torch
from stages import digest, habit, net, run, step, train
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset


def loader():
    return DataLoader(TensorDataset(torch.arange(16.0).view(8, 2)), batch_size=2)


class Wrap:
    """Another library's wrap of a function: counts its calls, and puts back what it found."""

    def __init__(self, owner, name):
        self.owner, self.name, self.found, self.count = owner, name, getattr(owner, name), 0

        def wrapped(*args, **kwargs):
            self.count += 1
            return self.found(*args, **kwargs)

        setattr(owner, name, wrapped)

    def undo(self):
        setattr(self.owner, self.name, self.found)


def save_and_load(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return digest(repr(torch.load(file)))


def fetch_and_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for (x,) in loader():
        with step(model):
            optimizer.zero_grad()
            loss = model(x.repeat(1, 4)).square().sum()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


def wrapped_places():
    base = torch.utils.data.dataloader._BaseDataLoaderIter
    return [(DataLoader, "__iter__"), (base, "__next__"), (torch, "save"), (torch.nn.Module, "__call__")]


@habit
def wraps_of_another_library_undone_in_another_order():
    originals = [getattr(owner, name) for owner, name in wrapped_places()]
    model = net()
    early = [Wrap(owner, name) for owner, name in wrapped_places()]
    yield
    late = [Wrap(owner, name) for owner, name in wrapped_places()]
    found = [fetch_and_step(model), save_and_load(model), [w.count for w in early], [w.count for w in late]]
    for wrap in late:
        wrap.undo()
    found += [fetch_and_step(model), save_and_load(model), [w.count for w in early], [w.count for w in late]]
    late = [Wrap(owner, name) for owner, name in wrapped_places()]
    yield
    found += [fetch_and_step(model), save_and_load(model), [w.count for w in early], [w.count for w in late]]
    for wrap in late:
        wrap.undo()
    found += [fetch_and_step(model), save_and_load(model), [w.count for w in early]]
    for wrap in early:
        wrap.undo()
    found += [fetch_and_step(model), save_and_load(model), [w.count for w in early]]
    restored = [getattr(owner, name) is was for (owner, name), was in zip(wrapped_places(), originals)]
    yield [found, restored]


@habit
def a_wrap_that_is_undone_under_ours():
    class Logged(torch.nn.Module):
        def forward(self, x):
            return x * 2

    model = Logged()
    wrap = Wrap(Logged, "__call__")
    yield
    with step(model):
        found = [model(torch.ones(1)).tolist(), wrap.count]
    wrap.undo()
    with step(model):
        found += [model(torch.ones(1)).tolist(), wrap.count]
    yield
    yield [*found, model(torch.ones(1)).tolist()]


@habit
def an_optimizer_step_wrapped_on_the_instance():
    model, calls = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    real = optimizer.step

    def logged(*args, **kwargs):
        calls.append("step")
        return real(*args, **kwargs)

    optimizer.step = logged
    losses = train(model, optimizer=optimizer)
    optimizer.step = real
    return [losses, train(model, optimizer=optimizer), calls]


@habit
def a_profiler_that_runs():
    model = net()
    fetch_and_step(model)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        losses = fetch_and_step(model)
    return [losses, sorted((event.key, event.count) for event in profiler.key_averages())]


@habit
def every_operation_is_the_users_own():
    class Operations(TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    model = net()
    with Functions(), Operations():
        fetch_and_step(model)
        save_and_load(model)
        with torch.no_grad():
            model(torch.ones(1, 8))
    others = [name for name in Functions.seen if name != "size"]  # we ask a sampler for its length, once a loader
    return [digest(Operations.seen), len(Operations.seen), digest(others), len(others)]


@habit
def saved_tensors_hooks_and_anomaly_mode():
    model, packed = net(), []

    def pack(x):
        packed.append(list(x.shape))
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), torch.autograd.set_detect_anomaly(True):
        losses = train(model)
    return [losses, packed]


@habit
def watchers_of_the_garbage_collector():
    seen = []

    def watcher(phase, info):
        seen.append((phase, info["generation"]))

    gc.callbacks.append(watcher)
    yield
    with step():
        gc.collect()
    found = [("start", 2) in seen, ("stop", 2) in seen, seen.count(("start", 2)) == seen.count(("stop", 2))]
    yield
    gc.callbacks.remove(watcher)
    # Under `traceml run` nobody calls shutdown(): the recording goes on, and so does its own callback.
    goes_on = "TRACEML_RUN" in os.environ
    yield [found, [c for c in gc.callbacks if not (goes_on and c.__module__ == "traceml.recorder.hooks.collections")]]


def process():
    return {
        "threads": [thread.name for thread in threading.enumerate()],
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile(), sys.displayhook.__name__],
        "argv": sys.argv[1:],
        "path": sys.path,
        "main": sys.modules["__main__"].__spec__,
        # `traceml run` gets in by two variables, and says so in docs/limits.md: its own name, and a folder of PYTHONPATH.
        "environment": sorted(n for n in os.environ if n not in ("TRACED", "TRACEML_RUN")),
        "modules": [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not p.endswith("launch/entry")],
        "handlers": [type(handler).__name__ for handler in logging.root.handlers],
        "start": multiprocessing.get_start_method(allow_none=True),
        "warnings": len(warnings.filters),
        "umask": os.umask(0o22) and os.umask(0o22),
        "cwd": os.getcwd() == os.path.realpath(os.curdir),
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold()],
        "torch": [torch.get_num_threads(), torch.is_grad_enabled(), str(torch.get_default_dtype())],
        "cuda": torch.cuda.is_initialized(),
    }


@habit
def the_process_around_the_training():
    yield
    train(net())
    found = process()
    yield
    yield [found, process()]


if __name__ == "__main__":
    run()
