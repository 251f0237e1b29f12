"""Trains a WGAN with gradient penalty: backward through a gradient, and the generator's turn every fifth batch."""

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(len(real), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    (gradients,) = torch.autograd.grad(
        outputs=scores, inputs=mixed, grad_outputs=torch.ones_like(scores), create_graph=True, retain_graph=True
    )
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def main():
    generator = nn.Sequential(nn.Linear(16, 128), nn.LeakyReLU(0.2), nn.Linear(128, 32))
    critic = nn.Sequential(nn.Linear(32, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.Softplus(), nn.Linear(128, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.5, 0.9))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.5, 0.9))
    losses = []
    for i, (real,) in enumerate(DataLoader(TensorDataset(torch.randn(640, 32)), batch_size=32)):
        with step(critic, generator):
            optimizer_c.zero_grad()
            fake = generator(torch.randn(len(real), 16)).detach()
            loss_c = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(critic, real, fake)
            loss_c.backward()
            optimizer_c.step()
            if i % 5 == 4:
                optimizer_g.zero_grad()
                loss_g = -critic(generator(torch.randn(len(real), 16))).mean()
                loss_g.backward()
                optimizer_g.step()
                losses.append(loss_g.item())
        losses.append(loss_c.item())
    finish(losses, generator, critic)


main()
