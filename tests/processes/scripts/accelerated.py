"""Trains with accelerate: all is prepared, and four of eleven micro-batches make an update."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from typing import Any

import accelerate
import torch

if "traced" in sys.argv:
    import traceml

WAIT_S = 0.005


class Slow(torch.utils.data.Dataset[Any]):  # type: ignore[misc]  # torch is Any where it is not installed
    """Each batch of four takes 20 ms to fetch."""

    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> Any:
        time.sleep(WAIT_S)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(16, generator=generator), torch.randn(4, generator=generator)


def train(how: str, precision: str, every: int) -> None:
    traced = how == "traced"
    if traced:
        traceml.init()
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
            if accelerator.is_main_process:
                say(f"{epoch} {number} {loss.item().hex()} {scheduler.get_last_lr()}")
    total = sum(p.double().sum().item() for p in model.parameters())
    say(f"rank {accelerator.process_index}: {total.hex()} {sorted(vars(optimizer))}")
    accelerator.wait_for_everyone()  # gloo aborts now and then where ranks leave one by one
    accelerator.end_training()


def say(line: str) -> None:
    """In one piece: two ranks share this stream."""
    os.write(1, f"{line}\n".encode())


def step_of(model: Any, traced: bool) -> Any:
    return traceml.trace_step(model) if traced else contextlib.nullcontext()


def main(how: str = "", precision: str = "no", every: str = "4", launch: str = "") -> None:
    if launch == "notebook":
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        accelerate.notebook_launcher(train, (how, precision, int(every)), num_processes=2, use_port=str(port))
        return
    train(how, precision, int(every))


if __name__ == "__main__":
    main(*sys.argv[1:])
