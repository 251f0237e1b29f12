"""Trains with sharpness-aware minimization: two passes and one update a step."""

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norms = [p.grad.norm(p=2) for group in self.param_groups for p in group["params"]]
        scale = self.param_groups[0]["rho"] / (torch.norm(torch.stack(norms), p=2) + 1e-12)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError("call first_step and second_step")


def main():
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 4))
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    data = TensorDataset(torch.randn(256, 32), torch.randint(4, (256,)))
    losses = []
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        with step(model):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.first_step(zero_grad=True)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.second_step(zero_grad=True)
        losses.append(loss.item())
    finish(losses, model)


main()
