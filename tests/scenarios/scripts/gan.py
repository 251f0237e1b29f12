"""Two models and two optimizers in one step: forward 21, backward 15, optimizer 6 ms, and 60 steps, not 120."""
import torch
import traceml
from torch import nn
from workload import SlowSGD, Timed, make

traceml.init(mode="auto")
_, _, _, loader = make()
generator = nn.Sequential(Timed(6, 6), nn.Linear(4, 32))
critic = Timed(3, 3)
of_generator, of_critic = SlowSGD(generator.parameters(), lr=0.01), SlowSGD(critic.parameters(), lr=0.01)
of_generator.step_ms = of_critic.step_ms = 3
for real, _ in loader:
    with traceml.trace_step(generator, critic):
        noise = torch.randn_like(real)
        of_critic.zero_grad()
        (critic(generator(noise).detach()).mean() - critic(real).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(noise)).mean()).backward()
        of_generator.step()
