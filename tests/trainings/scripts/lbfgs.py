"""Trains with LBFGS: each step calls a closure several times, forward and backward inside."""

import torch
from harness import finish, step
from torch import nn


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 24), nn.LSTMCell(24, 24), nn.Linear(24, 1)

    def forward(self, x):
        h1 = c1 = h2 = c2 = torch.zeros(x.shape[0], 24)
        outputs = []
        for x_t in x.split(1, dim=1):
            h1, c1 = self.lstm1(x_t, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            outputs.append(self.linear(h2))
        return torch.cat(outputs, dim=1)


def main():
    wave = torch.sin(torch.arange(21).float() / 2 + 10 * torch.rand(6, 1))
    x, target = wave[:, :-1], wave[:, 1:]
    seq, criterion = Sequence(), nn.MSELoss()
    optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.4, max_iter=4)
    losses = []
    for _ in range(12):

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(x), target)
            losses.append(loss.item())
            loss.backward()
            return loss

        with step(seq):
            optimizer.step(closure)
    finish(losses, seq)


main()
