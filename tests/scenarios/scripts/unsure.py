"""No trace_step, and five updates of the critic on each batch: what a step is cannot be told, and no verdict is given."""
import traceml
from workload import make

traceml.init()
critic, criterion, optimizer, loader = make(num_steps=20, forward_ms=1, backward_ms=1)
generator, _, slow, _ = make(forward_ms=1, backward_ms=1)
for x, y in loader:
    for _ in range(5):
        optimizer.zero_grad()
        criterion(critic(x), y).backward()
        optimizer.step()
    slow.zero_grad()
    criterion(generator(x), y).backward()
    slow.step()
