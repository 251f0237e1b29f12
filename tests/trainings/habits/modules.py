"""Calls, hooks, shares, schedules and changes modules in every way that people do."""

import torch
from stages import digest, habit, net, run, step, train
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def grads(model):
    return digest([p.grad.tolist() if p.grad is not None else None for p in model.parameters()])


def schedulers(optimizer):
    return [
        lr_scheduler.StepLR(optimizer, 2, 0.5),
        lr_scheduler.CosineAnnealingLR(optimizer, 10),
        lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch),
        lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20),
        lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)],
            milestones=[3],
        ),
        lr_scheduler.ReduceLROnPlateau(optimizer),
    ]


def scheduled(model, optimizer, made):
    rates = []
    for _ in range(5):
        with step(model):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            for scheduler in made[:-1]:
                scheduler.step()
        made[-1].step(1.0)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@habit
def schedulers_built_before_the_watching():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    made = schedulers(optimizer)
    yield
    yield scheduled(model, optimizer, made)
    yield


@habit
def schedulers_built_after_it_began():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return scheduled(model, optimizer, schedulers(optimizer))


@habit
def schedulers_built_inside_a_step():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with step(model):
        made = schedulers(optimizer)
    return scheduled(model, optimizer, made)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.act = nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.act(self.a(x))
        return self.b(y).add_(x)


@habit
def activations_in_place():
    model = InPlace()
    with step(model, model.a, model.act):
        x = torch.randn(4, 8)
        y = nn.functional.relu_(model(x))
        y.sum().backward()
    return [digest(y), grads(model), train(model)]


@habit
def shared_weights_and_modules_called_again():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(8, 8)
            self.alias, self.twin, self.unused = self.one, nn.Linear(8, 8), nn.Linear(8, 8)
            self.twin.weight = self.one.weight

        def forward(self, x):
            for _ in range(3):
                x = torch.tanh(self.one(x))
            return self.twin(self.alias(x))

    model = Tied()
    return [train(model), grads(model), len(list(model.parameters())), [n for n, _ in model.named_modules()]]


@habit
def a_model_that_calls_itself():
    class Recursive(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x, depth=3):
            return self.layer(x) if depth == 0 else torch.tanh(self(x, depth - 1))

    return train(Recursive())


def hook_all(model, optimizer, name, order):
    def note(kind):
        return lambda *_: order.append(f"{name} {kind}")

    def change(_module, args):
        order.append(f"{name} changes the input")
        return (args[0] + 1,)

    def double(_module, _args, _kwargs, output):
        order.append(f"{name} changes the output")
        return output * 2

    model.register_forward_pre_hook(change)
    model.register_forward_hook(note("forward"))
    model.register_forward_hook(double, with_kwargs=True)
    model.register_full_backward_pre_hook(note("backward pre"))
    model.register_full_backward_hook(note("backward"))
    model[0].register_forward_hook(note("inner forward"))
    model[0].register_full_backward_hook(note("inner backward"))
    model[0].weight.register_hook(lambda grad: order.append(f"{name} gradient") or grad * 2)
    model[0].weight.register_post_accumulate_grad_hook(note("accumulated"))
    optimizer.register_step_pre_hook(note("step pre"))
    optimizer.register_step_post_hook(note("step post"))


@habit
def hooks_of_the_user_before_and_after_ours():
    model, order = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook_all(model, optimizer, "early", order)
    handles = [
        register_optimizer_step_pre_hook(lambda *_: order.append("global early pre")),
        torch.nn.modules.module.register_module_forward_hook(lambda *_: order.append("global forward")),
    ]
    yield
    handles.append(register_optimizer_step_post_hook(lambda *_: order.append("global late post")))
    hook_all(model, optimizer, "late", order)
    order.clear()  # the other habits' trainings, which run in between
    losses = train(model, optimizer=optimizer)
    for handle in handles:
        handle.remove()
    yield
    yield [order, losses, train(model, optimizer=optimizer), digest(model)]


@habit
def hooks_that_are_always_called_see_an_exception():
    order = []

    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("mine")

    model = Broken()
    model.register_forward_hook(lambda *_: order.append("always"), always_call=True)
    for _ in range(2):
        try:
            with step(model):
                model(torch.ones(1))
        except ValueError as error:
            order.append(str(error))
    return order


@habit
def replicas_compute_with_their_own_weights():
    model, found = net(), []

    def inside():
        replica = model._replicate_for_data_parallel()
        replica._modules["2"] = nn.Linear(16, 3)
        found.append((list(replica(torch.ones(1, 8)).shape), list(model(torch.ones(1, 8)).shape)))

    losses = train(model, inside=inside)
    inside()
    return [found, losses]


@habit
def a_model_in_data_parallel():
    model = net()
    outer = nn.DataParallel(model)
    losses = []
    for _ in range(3):
        with step(outer):
            loss = outer(torch.randn(4, 8)).sum()
            loss.backward()
        losses.append(loss.item())
    return [losses, grads(model), list(outer.state_dict())]


@habit
def exceptions_are_the_users_own():
    model, found = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def attempt(function):
        try:
            with step(model):
                function()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error} {error.__context__!r} {error.__cause__!r}")

    def twice():
        loss = model(torch.ones(1, 8)).sum()
        loss.backward()
        loss.backward()

    attempt(lambda: model(torch.ones(1, 9)))
    attempt(lambda: model())
    attempt(lambda: model(x=1, y=2))
    attempt(twice)
    attempt(lambda: optimizer.step(lambda: 1 / 0))
    attempt(lambda: torch.ones(1).backward())
    return [found, train(model)]


@habit
def a_forward_that_raises_is_called_once():
    calls = []

    class Broken(nn.Module):
        def forward(self, x):
            calls.append(torch.is_grad_enabled())
            raise ValueError(f"call {len(calls)}")

    model, found = Broken(), []
    for mode in (torch.enable_grad, torch.no_grad):
        for inside in (True, False):
            try:
                with step(model) if inside else mode(), mode():
                    model(torch.ones(1))
            except ValueError as error:
                found.append(str(error))
    return [calls, found]


@habit
def a_parametrized_model():
    model = nn.Linear(8, 2)
    train(model)
    torch.nn.utils.parametrizations.weight_norm(model)
    losses = train(model)
    torch.nn.utils.parametrize.remove_parametrizations(model, "weight")
    return [losses, train(model), type(model).__name__, digest(model)]


@habit
def a_model_whose_class_changes():
    class Other(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    model = nn.Linear(8, 2)
    train(model)
    x = torch.ones(1, 8)
    before = model(x)
    model.__class__ = Other
    with step(model):
        inside = model(x)
    return [torch.equal(inside, before * 2), torch.equal(model(x), before * 2)]


@habit
def a_lazy_model():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))
    with step(model):
        model(torch.ones(2, 8)).sum().backward()
    return [train(model), [type(m).__name__ for m in model]]


@habit
def a_call_put_on_the_instance_or_class():
    class Noted(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def __call__(self, x):
            return super().__call__(x) + 1

        def forward(self, x):
            return self.body(x)

    model = Noted()
    losses = train(model)
    real = model.forward
    model.forward = lambda x: real(x) * 3
    return [losses, train(model), model(torch.ones(1, 8)).tolist()]


if __name__ == "__main__":
    run()
