"""Trains with the optimizer inside backward: each parameter is updated as soon as its gradient is there."""

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
    optimizers = {p: torch.optim.Adam([p], lr=1e-3, foreach=False) for p in model.parameters()}

    def optimizer_hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(optimizer_hook)
    data = TensorDataset(torch.randn(320, 32), torch.randint(4, (320,)))
    losses = []
    for x, y in DataLoader(data, batch_size=16):
        with step(model):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
        losses.append(loss.item())
    finish(losses, model)


main()
