"""Every 10 steps one batch of a slow validation loader: its only fetch is eval, not input."""
import torch
import traceml
from torch.utils.data import DataLoader
from workload import Items, make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=8, backward_ms=8, optimizer_ms=4, num_steps=100)
validation = DataLoader(Items(16, item_ms=25), batch_size=4)
for i, (x, y) in enumerate(loader, start=1):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    if i % 10 == 0:
        vx, _ = next(iter(validation))
        with torch.no_grad():
            model(vx)
