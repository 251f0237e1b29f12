"""Trains with a small trainer whose callback evaluates inside the iteration, every tenth step."""

import torch
from harness import finish, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, loader, callbacks):
        self.model, self.loader, self.callbacks = model, loader, callbacks
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.num_steps, self.losses = 0, []

    def training_step(self, batch):
        x, y = batch
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, num_epochs):
        for _ in range(num_epochs):
            for batch in self.loader:
                with step(self.model):
                    loss = self.training_step(batch)
                    self.num_steps += 1
                    self.losses.append(loss.item())
                    for callback in self.callbacks:
                        callback.on_step_end(self)


class Evaluate:
    def __init__(self, loader, every):
        self.loader, self.every = loader, every

    @torch.no_grad()
    def on_step_end(self, trainer):
        if trainer.num_steps % self.every:
            return
        trainer.model.eval()
        correct = sum((trainer.model(x).argmax(1) == y).sum().item() for x, y in self.loader)
        trainer.model.train()
        trainer.losses.append(correct / len(self.loader.dataset))


def main():
    def data(num_rows):
        return TensorDataset(torch.randn(num_rows, 32), torch.randint(4, (num_rows,)))

    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 4))
    trainer = Trainer(model, DataLoader(data(240), batch_size=16, shuffle=True),
                      [Evaluate(DataLoader(data(96), batch_size=32), every=10)])
    trainer.fit(num_epochs=2)
    finish(trainer.losses, model)


main()
