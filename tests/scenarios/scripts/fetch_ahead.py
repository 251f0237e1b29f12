"""No trace_step: each batch is fetched before the update on the one before it, three epochs of 20 steps."""
from workload import make

model, criterion, optimizer, loader = make(batch_ms=12, forward_ms=5, backward_ms=5, optimizer_ms=2, num_steps=20)
for _ in range(3):
    batches = iter(loader)
    batch = next(batches, None)
    while batch is not None:
        x, y = batch
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        batch = next(batches, None)
        optimizer.step()
