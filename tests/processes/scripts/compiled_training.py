"""Trains every way in which torch.compile meets a traced model, and prints what the compiler counted for each.

`bare BACKEND` or `traced BACKEND RING_FOLDER`: the counts and the losses must be the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

WAYS = (
    "raw traced, compiled called",
    "compiled traced",
    "Module.compile",
    "compiled outer",
    "compiled function",
    "break",
)
NUM_STEPS = 3


class Small(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(x))


class Breaking(Small):
    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        torch._dynamo.graph_break()
        return torch.relu(y)


class Outer(nn.Module):  # type: ignore[misc]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x) + 1


def compiled(way: str, model: Any, **options: Any) -> tuple[Any, Any]:
    """What is called, and what is given to trace_step."""
    if way == "Module.compile":
        model.compile(**options)
        return model, model
    if way == "compiled outer":
        return torch.compile(Outer(model), **options), model
    if way == "compiled function":
        return torch.compile(lambda x: model(x) * 2, **options), model
    wrapper = torch.compile(model, **options)
    return wrapper, wrapper if way == "compiled traced" else model


def train(way: str, *, is_root: bool, is_full: bool, is_inside: bool, trace: Any) -> list[float]:
    torch.manual_seed(0)
    model = Breaking() if way == "break" else nn.Sequential(nn.Linear(4, 4), nn.ReLU()) if is_root else Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options: Any = {"backend": sys.argv[2], "fullgraph": is_full}
    called, traced = (None, model) if is_inside else compiled(way, model, **options)
    losses = []
    for _ in range(NUM_STEPS):
        with trace(traced):
            if called is None:
                called, traced = compiled(way, model, **options)
            optimizer.zero_grad()
            loss = called(torch.ones(2, 4)).sum()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    session: Any = None
    trace: Any = lambda *_: contextlib.nullcontext()  # noqa: E731  # the place of trace_step
    if sys.argv[1] == "traced":
        from traceml.recorder.session import Session
        from traceml.recorder.step import trace_step

        session, trace = Session(Path(sys.argv[3])), trace_step
    found: dict[str, Any] = {}
    for way, is_root, is_full, is_inside in itertools.product(WAYS, (True, False), (True, False), (False, True)):
        if way == "break" and (is_full or is_root):
            continue
        name = f"{way}, {'torch.nn root' if is_root else 'user class'}, full {is_full}, inside {is_inside}"
        try:
            losses: Any = train(way, is_root=is_root, is_full=is_full, is_inside=is_inside, trace=trace)
        except RuntimeError as error:  # what torch refuses without us it must refuse with us
            losses = str(error).splitlines()[0]
        counters = torch._dynamo.utils.counters
        counts = [counters["stats"]["unique_graphs"], dict(counters["frames"]), sum(counters["graph_break"].values())]
        found[name] = [counts, losses]
        counters.clear()
        torch._dynamo.reset()
    if session is not None:
        session.close("end")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
