"""Trains by the forward-forward algorithm: each layer has its own optimizer, and a method `train` that is no mode."""

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Layer(nn.Linear):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.opt = torch.optim.Adam(self.parameters(), lr=0.03)
        self.threshold = 2.0

    def forward(self, x):
        x_direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
        return torch.relu(x_direction @ self.weight.T + self.bias)

    def train(self, x_pos, x_neg):
        g_pos = self.forward(x_pos).pow(2).mean(1)
        g_neg = self.forward(x_neg).pow(2).mean(1)
        loss = torch.log(1 + torch.exp(torch.cat([-g_pos + self.threshold, g_neg - self.threshold]))).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return self.forward(x_pos).detach(), self.forward(x_neg).detach(), loss.item()


class Net(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.layers = nn.ModuleList(Layer(a, b) for a, b in zip(dims, dims[1:]))

    def predict(self, x, num_classes):
        goodness = []
        for label in range(num_classes):
            h, total = overlay(x, torch.full((len(x),), label)), 0
            for layer in self.layers:
                h = layer(h)
                total = total + h.pow(2).mean(1)
            goodness.append(total)
        return torch.stack(goodness, 1).argmax(1)

    def train(self, x_pos, x_neg):
        losses = []
        for layer in self.layers:
            x_pos, x_neg, loss = layer.train(x_pos, x_neg)
            losses.append(loss)
        return losses


def overlay(x, y):
    x = x.clone()
    x[:, :4] = 0
    x[range(len(x)), y] = x.max()
    return x


def main():
    net = Net([64, 128, 128])
    x, y = torch.rand(512, 64), torch.randint(4, (512,))
    losses = []
    for bx, by in DataLoader(TensorDataset(x, y), batch_size=32):
        with step(net):
            losses += net.train(overlay(bx, by), overlay(bx, by[torch.randperm(len(by))]))
    losses.append((net.predict(x, 4) == y).float().mean().item())
    finish(losses, net)


main()
