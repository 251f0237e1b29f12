"""Trains a recurrent network over one long sequence in pieces, and updates its weights by hand."""

import torch
from harness import finish, step
from torch import nn


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x, state):
        y, state = self.rnn(self.embed(x), state)
        return self.out(y), state


def repackage(state):
    return None if state is None else tuple(s.detach() for s in state)


def main():
    vocab, length, num_pieces, lr = 20, 24, 20, 0.5
    sequence = torch.randint(vocab, (8, length * num_pieces + 1))
    model, criterion = CharRNN(vocab, 64), nn.CrossEntropyLoss()
    state, losses = None, []
    for i in range(0, length * num_pieces, length):
        x, y = sequence[:, i : i + length], sequence[:, i + 1 : i + 1 + length]
        with step(model):
            model.zero_grad()
            output, state = model(x, repackage(state))
            loss = criterion(output.reshape(-1, vocab), y.reshape(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
        losses.append(loss.item())
    finish(losses, model)


main()
