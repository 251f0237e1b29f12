"""Trains a small convolutional network on made-up pictures whose decoding is slow: a real run to look at with TraceML.

`traceml run examples/train.py` shows the trouble, `traceml run examples/train.py --workers 2` what the advice brings.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import traceml

NUM_CLASSES = 4
SIZE = 32


class Pictures(Dataset[tuple[Tensor, int]]):
    """Noisy gratings, one direction a class; `work` passes of smoothing stand for the decoding of a real picture."""

    def __init__(self, num_pictures: int, *, work: int) -> None:
        self.num_pictures, self.work = num_pictures, work
        self.x, self.y = torch.meshgrid(torch.arange(SIZE) / SIZE, torch.arange(SIZE) / SIZE, indexing="ij")

    def __len__(self) -> int:
        return self.num_pictures

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = index % NUM_CLASSES
        angle = torch.tensor(label * torch.pi / NUM_CLASSES)
        noise = torch.randn(3, SIZE, SIZE, generator=torch.Generator().manual_seed(index))
        for _ in range(self.work):
            noise = nn.functional.avg_pool2d(noise, kernel_size=5, stride=1, padding=2)
        grating = torch.sin(20 * (self.x * angle.cos() + self.y * angle.sin()) + index)
        return 0.3 * grating + noise, label


def main() -> None:
    """Trains for a quarter of a minute and prints the loss now and then."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()

    traceml.init(mode="auto", total_steps=args.steps)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, NUM_CLASSES),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    pictures = Pictures(args.steps * args.batch, work=8)
    loader = DataLoader(pictures, batch_size=args.batch, shuffle=True, num_workers=args.workers)

    for step, (x, y) in enumerate(loader, start=1):
        with traceml.trace_step(model):
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        if step % 25 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
