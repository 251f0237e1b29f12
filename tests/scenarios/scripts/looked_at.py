"""Batches of the training loader are looked at before the training (startup) and once between two steps (eval)."""
import itertools
import time

import traceml
from torch.utils.data import DataLoader
from workload import Items, make


class Curious(Items):
    looking = False

    def __getitem__(self, index):
        if self.looking:
            time.sleep(0.010)
        return super().__getitem__(index)


def look(num_batches):
    items.looking = True
    for x, _ in itertools.islice(loader, num_batches):
        x.mean()
    items.looking = False


traceml.init(mode="auto")
model, criterion, optimizer, _ = make(forward_ms=8, backward_ms=8, optimizer_ms=4)
items = Curious(240)
loader = DataLoader(items, batch_size=4)
look(20)
for i, (x, y) in enumerate(loader, start=1):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    if i == 30:
        look(5)
