"""Trains with automatic mixed precision and a gradient scaler, which skips two steps whose gradients are not finite."""

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
    data = TensorDataset(torch.randn(320, 32), torch.randint(4, (320,)))
    losses = []
    for i, (x, y) in enumerate(DataLoader(data, batch_size=16)):
        with step(model):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y)
            if i in (6, 13):
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        losses += [loss.item(), scaler.get_scale()]
    finish(losses, model)


main()
