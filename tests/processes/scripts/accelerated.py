"""Trains with accelerate: prepared model, optimizer, loader and scheduler, 11 micro-batches of which 4 make an update."""

from __future__ import annotations

import sys
import time
from typing import Any

import accelerate
import torch

WAIT_S = 0.02


class Slow(torch.utils.data.Dataset[Any]):
    """Each batch of four takes 80 ms to fetch."""

    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> Any:
        time.sleep(WAIT_S)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(16, generator=generator), torch.randn(4, generator=generator)


def train(*, traced: bool, precision: str, every: int = 4) -> None:
    torch.set_num_threads(1)
    accelerator = accelerate.Accelerator(mixed_precision=precision, gradient_accumulation_steps=every, cpu=True)
    accelerate.utils.set_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    loader = torch.utils.data.DataLoader(Slow(), batch_size=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            with step_of(model, traced), accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            accelerator.print(epoch, number, loss.item().hex(), scheduler.get_last_lr())
    total = sum(p.double().sum().item() for p in model.parameters())
    sys.stdout.write(f"rank {accelerator.process_index}: {total.hex()} {sorted(vars(optimizer))}\n")
    accelerator.end_training()


def step_of(model: Any, traced: bool) -> Any:
    if not traced:
        import contextlib

        return contextlib.nullcontext()
    import traceml

    return traceml.trace_step(model)


def main(how: str = "", precision: str = "no", launch: str = "") -> None:
    if how == "traced":
        import traceml

        traceml.init()
    if launch == "notebook":
        accelerate.notebook_launcher(train_spawned, (how, precision), num_processes=2, use_port="0")
        return
    train(traced=how == "traced", precision=precision)


if __name__ == "__main__":
    main(*sys.argv[1:])
