"""A full garbage collection a step, over so many objects that it takes as long as the model's work."""
import gc
import time

import traceml
from workload import make


def collection_s():
    begin = time.perf_counter()
    gc.collect()
    return time.perf_counter() - begin


traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=8, backward_ms=8, optimizer_ms=4)
gc.freeze()  # torch's own million of objects would take 100 ms
kept = []
while min(collection_s() for _ in range(3)) < 0.020:
    kept.append([[] for _ in range(50_000)])
for x, y in loader:
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        gc.collect()
