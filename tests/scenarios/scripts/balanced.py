"""A step of under a millisecond whose parts are all alike, and all too small in themselves to be worth a look."""
import time

import traceml
from workload import Items, make
from torch.utils.data import DataLoader


def spin(ms):
    """Works for `ms`: a sleep this short would last several times as long as asked."""
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass


class Spinning(Items):
    def __getitem__(self, index):
        spin(0.12)
        return super().__getitem__(index)


traceml.init(mode="auto")
model, criterion, optimizer, _ = make()
loader = DataLoader(Spinning(3000), batch_size=None)
for x, y in loader:
    with traceml.trace_step(model):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    spin(0.12)
