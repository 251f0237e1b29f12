"""Trains a PPO agent in the style of one file: the agent's forward does not exist, its two networks are called."""

import random

import torch
from harness import finish, step
from torch import nn
from torch.distributions.categorical import Categorical

NUM_ENVS, NUM_STEPS, NUM_ITERATIONS, EPOCHS, MINIBATCH = 4, 16, 4, 2, 16


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


def main():
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    losses = []
    next_obs = torch.randn(NUM_ENVS, 4)
    for _ in range(NUM_ITERATIONS):
        obs, actions, logprobs, rewards, values = [], [], [], [], []
        for _ in range(NUM_STEPS):
            obs.append(next_obs)
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
            actions.append(action)
            logprobs.append(logprob)
            values.append(value.flatten())
            next_obs = 0.9 * next_obs + 0.1 * torch.randn(NUM_ENVS, 4) + (action.float() - 0.5).unsqueeze(1)
            rewards.append(1.0 - next_obs.abs().mean(1))
        with torch.no_grad():
            returns, running = [], agent.get_value(next_obs).flatten()
            for reward in reversed(rewards):
                running = reward + 0.99 * running
                returns.insert(0, running)
        b_obs, b_actions, b_logprobs = torch.cat(obs), torch.cat(actions), torch.cat(logprobs)
        b_returns = torch.cat(returns)
        b_advantages = b_returns - torch.cat(values)
        inds = list(range(NUM_ENVS * NUM_STEPS))
        for _ in range(EPOCHS):
            random.shuffle(inds)
            for start in range(0, len(inds), MINIBATCH):
                mb = inds[start : start + MINIBATCH]
                with step(agent):
                    _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], b_actions[mb])
                    ratio = (newlogprob - b_logprobs[mb]).exp()
                    advantages = b_advantages[mb]
                    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
                    pg_loss = torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2)).mean()
                    v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb]) ** 2).mean()
                    loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                    optimizer.step()
                losses.append(loss.item())
    finish(losses, agent)


main()
