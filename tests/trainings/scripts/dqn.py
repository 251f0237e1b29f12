"""Trains a DQN as the tutorial does: acts without gradients, learns from a replay memory, keeps a target network."""

import math
import random
from collections import deque, namedtuple

import torch
from harness import finish, step
from torch import nn

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
BATCH_SIZE, GAMMA, TAU = 32, 0.99, 0.005


class Pole:
    """A world of four numbers that falls over now and then."""

    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action):
        push = 0.1 if action == 1 else -0.1
        x, v, a, w = self.state
        self.state = [x + 0.1 * v, v + push, a + 0.1 * w, w - 0.8 * push + 0.2 * math.sin(a)]
        return self.state, 1.0, abs(self.state[2]) > 0.2


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2, self.layer3 = nn.Linear(4, 128), nn.Linear(128, 128), nn.Linear(128, 2)

    def forward(self, x):
        return self.layer3(torch.relu(self.layer2(torch.relu(self.layer1(x)))))


policy_net, target_net = DQN(), DQN()
target_net.load_state_dict(policy_net.state_dict())
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory = deque([], maxlen=1000)
losses = []


def select_action(state, eps):
    if random.random() > eps:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]])


def optimize_model():
    with step(policy_net):
        batch = Transition(*zip(*random.sample(memory, BATCH_SIZE)))
        mask = torch.tensor([s is not None for s in batch.next_state])
        values = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
        next_values = torch.zeros(BATCH_SIZE)
        with torch.no_grad():
            next_values[mask] = target_net(torch.cat([s for s in batch.next_state if s is not None])).max(1).values
        expected = next_values * GAMMA + torch.cat(batch.reward)
        loss = nn.SmoothL1Loss()(values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
    losses.append(loss.item())


def main():
    env = Pole()
    state = torch.tensor([env.reset()])
    while len(losses) < 30:
        action = select_action(state, eps=0.4)
        observation, reward, terminated = env.step(action.item())
        next_state = None if terminated else torch.tensor([observation])
        memory.append(Transition(state, action, next_state, torch.tensor([reward])))
        state = torch.tensor([env.reset()]) if terminated else next_state
        if len(memory) >= BATCH_SIZE:
            optimize_model()
            target = target_net.state_dict()
            for key, value in policy_net.state_dict().items():
                target[key] = value * TAU + target[key] * (1 - TAU)
            target_net.load_state_dict(target)
    finish(losses, policy_net, target_net)


main()
