"""Two loaders are zipped: both feed the training, 10 ms each."""
import traceml
from torch.utils.data import DataLoader
from workload import Items, make

traceml.init(mode="auto")
model, criterion, optimizer, labelled = make(batch_ms=10, forward_ms=8, backward_ms=8, optimizer_ms=4)
unlabelled = DataLoader(Items(240, item_ms=2.5), batch_size=4)
for (x, y), (other, _) in zip(labelled, unlabelled):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x + 0.1 * other), y).backward()
        optimizer.step()
