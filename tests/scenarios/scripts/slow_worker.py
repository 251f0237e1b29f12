"""One loader worker of three takes 90 ms a batch: every third step waits 45 ms, half of the time in all."""
import time

import traceml
from torch.utils.data import DataLoader, get_worker_info
from workload import Items, make


class Uneven(Items):
    def __getitem__(self, index):
        if get_worker_info().id == 0:
            time.sleep(0.0225)
        return super().__getitem__(index)


traceml.init(mode="auto")
model, criterion, optimizer, _ = make(forward_ms=6, backward_ms=6, optimizer_ms=3)
loader = DataLoader(Uneven(360), batch_size=4, num_workers=3)
for x, y in loader:
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
