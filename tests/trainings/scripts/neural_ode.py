"""Trains a neural ODE by the adjoint method: backward solves the equation again, and calls the network to do it."""

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUM_STEPS = 8


class Dynamics(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, width))

    def forward(self, t, y):
        return self.net(y**3) * (1 - t)


class OdeAdjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, func, *params):
        ctx.func = func
        h = 1.0 / NUM_STEPS
        with torch.no_grad():
            for i in range(NUM_STEPS):
                y = y + h * func(i * h, y)
        ctx.save_for_backward(y, *params)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, *params = ctx.saved_tensors
        h, grads = 1.0 / NUM_STEPS, [torch.zeros_like(p) for p in params]
        for i in reversed(range(NUM_STEPS)):
            with torch.enable_grad():
                y = y.detach().requires_grad_(True)
                dy = ctx.func(i * h, y)
            found = torch.autograd.grad(dy, (y, *params), grad)
            y = y - h * dy.detach()
            grad = grad + h * found[0]
            grads = [mine + h * new for mine, new in zip(grads, found[1:])]
        return (grad, None, *grads)


class NeuralOde(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.func, self.head = Dynamics(width), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(OdeAdjoint.apply(x, self.func, *self.func.parameters()))


def main():
    model = NeuralOde()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(192, 8), torch.randint(2, (192,)))
    losses = []
    for x, y in DataLoader(data, batch_size=16):
        with step(model, model.func):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    finish(losses, model)


main()
