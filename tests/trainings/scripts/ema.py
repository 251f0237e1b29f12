"""Trains with an exponential moving average: a deep copy of the model, updated every step, evaluated now and then."""

import copy

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.module = copy.deepcopy(model).eval()
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.module.state_dict().values(), model.state_dict().values()):
            if mine.is_floating_point():
                mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)


def main():
    model = nn.Sequential(nn.Linear(32, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                          nn.Linear(128, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    x, y = torch.randn(400, 32), torch.randint(4, (400,))
    held_x, held_y = torch.randn(100, 32), torch.randint(4, (100,))
    ema, losses = EMA(model), []
    for i, (bx, by) in enumerate(DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)):
        with step(model):
            loss = nn.functional.cross_entropy(model(bx), by)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            if i == 7:
                late = EMA(model)  # copied in the middle of a step
        averaged.update_parameters(model)
        if i > 7:
            late.update(model)
        if i % 5 == 4:
            with torch.no_grad():
                losses.append(nn.functional.cross_entropy(ema.module(held_x), held_y).item())
                losses.append(nn.functional.cross_entropy(averaged(held_x), held_y).item())
        losses.append(loss.item())
    finish(losses, model, ema.module, late.module, averaged)


main()
