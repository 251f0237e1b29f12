"""Trains a MAML regression with functional calls: an inner gradient step a task, all tasks at once."""

import math

import torch
from harness import finish, step
from torch import nn
from torch.func import functional_call, grad, vmap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(1, 40), nn.Linear(40, 40), nn.Linear(40, 1)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)


def sample_tasks(num_tasks, num_points):
    amplitudes = 0.1 + 4.9 * torch.rand(num_tasks, 1, 1)
    phases = math.pi * torch.rand(num_tasks, 1, 1)

    def points():
        x = 10 * torch.rand(num_tasks, num_points, 1) - 5
        return x, amplitudes * torch.sin(x + phases)

    return points(), points()


def main():
    losses = []
    for _ in range(15):
        with step(net):
            (x1, y1), (x2, y2) = sample_tasks(8, 10)
            params = dict(net.named_parameters())

            def inner_loss(params, x, y):
                return ((functional_call(net, params, (x,)) - y) ** 2).mean()

            def loss_of_task(x1, y1, x2, y2):
                grads = grad(inner_loss)(params, x1, y1)
                adapted = {name: p - 0.1 * grads[name] for name, p in params.items()}
                return inner_loss(adapted, x2, y2)

            loss = vmap(loss_of_task)(x1, y1, x2, y2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        losses.append(loss.item())
    finish(losses, net)


main()
