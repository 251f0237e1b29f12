"""Trains a character-level GPT on batches of its own making, with gradient accumulation and an estimate now and then."""

import math

import torch
import torch.nn.functional as F
from harness import finish, step
from torch import nn

TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(4000))
BLOCK, BATCH, ACCUMULATION, MAX_ITERS = 32, 8, 4, 15


class Block(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.num_heads, c // self.num_heads).transpose(1, 2)
            for part in self.attn(self.ln_1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab, width=64, num_layers=2, num_heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(BLOCK, width)
        self.blocks = nn.ModuleList(Block(width, num_heads) for _ in range(num_layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.wte.weight = self.lm_head.weight  # weight tying

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1)) if targets is not None else None
        return logits, loss


chars = sorted(set(TEXT))
data = torch.tensor([chars.index(c) for c in TEXT])


def get_batch(split):
    part = data[: len(data) * 9 // 10] if split == "train" else data[len(data) * 9 // 10 :]
    ix = torch.randint(len(part) - BLOCK, (BATCH,))
    return torch.stack([part[i : i + BLOCK] for i in ix]), torch.stack([part[i + 1 : i + 1 + BLOCK] for i in ix])


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    found = torch.stack([model(*get_batch("val"))[1] for _ in range(2)]).mean()
    model.train()
    return found.item()


def get_lr(it):
    return 1e-3 * (it + 1) / 3 if it < 3 else 1e-4 + 0.5 * 9e-4 * (1 + math.cos(math.pi * (it - 3) / (MAX_ITERS - 3)))


def main():
    model = GPT(len(chars))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    losses = []
    x, y = get_batch("train")
    for it in range(MAX_ITERS):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        if it % 5 == 0:
            losses.append(estimate_loss(model))
        with step(model):
            for _ in range(ACCUMULATION):
                _, loss = model(x, y)
                loss = loss / ACCUMULATION
                x, y = get_batch("train")
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item() * ACCUMULATION)
    finish(losses, model)


main()
