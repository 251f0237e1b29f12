"""Compiles models in the ways people do, and counts graphs, frames and breaks."""

import torch
from stages import habit, net, run, step
from torch import nn
from torch._dynamo.utils import counters


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x):
        return torch.relu(self.body(x)) + 1


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


def counted(traced, called, size=8, num_steps=4, optimizer=True):
    """Trains, and says what the compiler did: losses, graphs, frames, breaks."""
    torch._dynamo.reset()
    counters.clear()
    traced = traced if isinstance(traced, (list, tuple)) else [traced]
    model = traced[0]
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for number in range(num_steps):
        x = torch.randn(4 + number // 2, size)
        with step(*traced):
            sgd.zero_grad()
            loss = called(x).sum()
            loss.backward()
            if optimizer:
                sgd.step()
        losses.append(loss.item())
        with torch.no_grad():
            losses.append(called(x).sum().item())
    stats = dict(counters["stats"]), sum(counters["graph_break"].values()), dict(counters["frames"])
    return [losses, sorted((str(k), v) for k, v in stats[0].items()), stats[1], sorted(stats[2].items())]


def compiled(model, **options):
    return torch.compile(model, backend="eager", **options)


@habit
def a_wrapper_traced_and_called():
    return [counted(wrapper, wrapper) for wrapper in (compiled(net(), fullgraph=True), compiled(Own(), fullgraph=True))]


@habit
def the_model_traced_and_its_wrapper_called():
    models = [net(), Own()]
    return [counted(model, compiled(model, fullgraph=True)) for model in models]


@habit
def compiled_after_the_first_step():
    found = []
    for model in (net(), Own()):
        with step(model):
            model(torch.ones(1, 8)).sum().backward()
        found.append(counted(model, compiled(model, fullgraph=True)))
    return found


@habit
def compiled_inside_a_step():
    model = Own()
    with step(model):
        wrapper = compiled(model, fullgraph=True)
        wrapper(torch.ones(2, 8)).sum().backward()
    return counted(wrapper, wrapper)


@habit
def compiled_before_the_watching():
    models = [net(), Own(), Breaks()]
    wrappers = [compiled(model) for model in models]
    for wrapper in wrappers:
        wrapper(torch.ones(2, 8))
    yield
    yield [counted(model, wrapper) for model, wrapper in zip(models, wrappers)]
    yield


@habit
def compiled_in_place():
    found = []
    for early in (True, False):
        model = Own()
        if early:
            model.compile(backend="eager", fullgraph=True)
        with step(model):
            if not early:
                model.compile(backend="eager", fullgraph=True)
            model(torch.ones(1, 8)).sum().backward()
        found.append(counted(model, model))
    return found


@habit
def compiled_in_place_before_the_watching_and_called_after_it():
    model = Own()
    model.compile(backend="eager", fullgraph=True)
    yield
    found = counted(model, model)
    yield
    yield [found, model(torch.ones(1, 8)).tolist()]


@habit
def a_model_with_a_break_of_its_own():
    model = Breaks()
    return [counted(model, compiled(model)), counted(compiled(Breaks()), compiled(model))]


@habit
def a_compiled_function_around_the_model():
    model = Own()
    function = compiled(lambda x: model(x).square())
    return counted(model, function)


@habit
def a_compiled_whole_step():
    model = Own()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def whole(x):
        sgd.zero_grad()
        loss = model(x).sum()
        loss.backward()
        sgd.step()
        return loss

    torch._dynamo.reset()
    counters.clear()
    function, losses = compiled(whole), []
    for _ in range(3):
        with step(model):
            losses.append(function(torch.ones(2, 8)).item())
    return [losses, counters["stats"].get("unique_graphs"), sum(counters["graph_break"].values())]


@habit
def a_compiled_optimizer_step():
    model = Own()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    torch._dynamo.reset()
    counters.clear()
    update, losses = compiled(sgd.step), []
    for _ in range(3):
        with step(model):
            loss = model(torch.ones(2, 8)).sum()
            loss.backward()
            update()
        losses.append(loss.item())
    return [losses, counters["stats"].get("unique_graphs"), sum(counters["graph_break"].values())]


@habit
def a_save_beside_a_compiled_model():
    import io

    wrapper = compiled(Own(), fullgraph=True)
    found = counted(wrapper, wrapper)
    file = io.BytesIO()
    torch.save(wrapper.state_dict(), file)
    torch.save(wrapper._orig_mod, file)
    return [found, list(wrapper.state_dict()), b"traceml" in file.getvalue()]


if __name__ == "__main__":
    run()
