"""Builds a training whose phases last as long as told: the ground truth of every scenario.

Delays are sleeps, so that shares hold on a noisy machine. `Timed` sleeps in forward and in backward (by an autograd
function), `SlowSGD` in step, `Items` in each item of the data set.
"""

import io
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: on shared cores a spinning pool triples a 12 ms phase

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, backward_ms):
        ctx.backward_ms = backward_ms
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.backward_ms:
            time.sleep(ctx.backward_ms / 1e3)
        return grad, None


class Timed(nn.Module):
    """A small model that takes forward_ms and backward_ms longer than it needs."""

    def __init__(self, forward_ms=0.0, backward_ms=0.0, width=32):
        super().__init__()
        self.forward_ms, self.backward_ms = forward_ms, backward_ms
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, x):
        if self.forward_ms:
            time.sleep(self.forward_ms / 1e3)
        x = torch.relu(self.first(x))
        return self.last(_Sleep.apply(x, self.backward_ms))


class SlowSGD(torch.optim.SGD):
    """SGD whose step takes step_ms longer."""

    step_ms = 0.0

    def step(self, closure=None):
        if self.step_ms:
            time.sleep(self.step_ms / 1e3)
        return super().step(closure)


class Items(Dataset):
    """num_items rows of `width` numbers; each takes item_ms to make."""

    def __init__(self, num_items, item_ms=0.0, width=32):
        self.num_items, self.item_ms, self.width = num_items, item_ms, width

    def __len__(self):
        return self.num_items

    def __getitem__(self, index):
        if self.item_ms:
            time.sleep(self.item_ms / 1e3)
        return torch.randn(self.width), index % 4


class SlowBuffer(io.BytesIO):
    """A file in memory whose first write takes ms."""

    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def write(self, data):
        time.sleep(self.ms / 1e3)
        self.ms = 0
        return super().write(data)


def make(*, forward_ms=0.0, backward_ms=0.0, optimizer_ms=0.0, num_steps=60, batch_ms=0.0, batch_size=4, **loader):
    """(model, loss, optimizer, loader) with num_steps batches that each take batch_ms to load."""
    torch.manual_seed(0)
    model = Timed(forward_ms, backward_ms)
    optimizer = SlowSGD(model.parameters(), lr=0.01)
    optimizer.step_ms = optimizer_ms
    items = Items(num_steps * batch_size, batch_ms / batch_size)
    return model, nn.CrossEntropyLoss(), optimizer, DataLoader(items, batch_size=batch_size, **loader)
