"""Trains with TraceML's calls in the script, and prints what of TraceML is in the process: patches, threads, files."""

import gc
import os
import sys
import threading

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.optim import optimizer as optim
from torch.utils.data import DataLoader, TensorDataset, dataloader


def names():
    """Every name that is ever patched, by identity."""
    base = dataloader._BaseDataLoaderIter
    functions = {
        "engine": torch.autograd._engine_run_backward,
        "save": torch.save,
        "saved": torch.serialization.save,
        "iter": DataLoader.__iter__,
        "next": base.__next__,
        "call": torch.nn.Module.__call__,
        "compile": torch.nn.Module.compile,
        "replicate": torch.nn.Module._replicate_for_data_parallel,
        "state": torch.nn.Module.__getstate__,
        "scaler": torch.amp.GradScaler.step,
        "to": torch.Tensor.to,
    }
    counts = [len(optim._global_optimizer_pre_hooks), len(optim._global_optimizer_post_hooks), len(gc.callbacks)]
    return {name: id(function) for name, function in functions.items()}, counts


def files():
    """The sockets, and the files of TraceML, that the process has open or mapped."""
    opened = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[-1] for line in maps if "/" in line}
    ours = ("socket:", ".ring", "/logs/", "traceml-")
    return sorted(path for path in opened | mapped if any(word in path for word in ours))


before, num_threads, importers = names(), threading.active_count(), list(sys.meta_path)
import traceml

traceml.init()
model = torch.nn.Linear(8, 2)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.ones(24, 8)), batch_size=4):
    with traceml.trace_step(model), traceml.region("all"):
        model(x).sum().backward()
        sgd.step()
    traceml.count(samples=4)
inside = {
    "patched": sorted(name for name, found in names()[0].items() if found != before[0][name]),
    "hooks": names()[1] != before[1],
    "importers": sys.meta_path != importers,
    "threads": threading.active_count() - num_threads,
    "native": len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0,
    "files": files(),
    "recorder": any(name.startswith("traceml.recorder.hooks.loader") for name in sys.modules),
    "slot": "_compiled_call_impl" in model.__dict__,
    "summary": traceml.summary() is not None,
    "run": os.environ.get("TRACEML_RUN"),
    "logs": os.path.exists("logs"),
}
print(inside)
traceml.shutdown()
sys.exit(7)
