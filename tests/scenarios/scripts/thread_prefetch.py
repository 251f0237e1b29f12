"""Another thread reads the loader: the training thread's wait for its queue is no fetch until it is wrapped."""
import queue
import sys
import threading

import traceml
from workload import make


def read():
    for batch in loader:
        batches.put(batch)
    batches.put(None)


traceml.init(mode="auto")
model, criterion, optimizer, loader = make(batch_ms=40, forward_ms=8, backward_ms=8, optimizer_ms=4)
batches = queue.Queue(maxsize=2)
threading.Thread(target=read, daemon=True).start()
found = iter(batches.get, None)
for x, y in traceml.wrap_dataloader(found) if "--wrap" in sys.argv else found:
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
