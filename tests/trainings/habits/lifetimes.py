"""Looks, with the garbage collector off, whether each thing is freed when its owner lets go of it."""

import gc
import weakref

import torch
from stages import habit, net, run, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Keeps(torch.autograd.Function):
    """Its context lives as long as the graph."""

    @staticmethod
    def forward(ctx, x, canary):
        ctx.canary = canary
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Canary:
    """Something to hang a weak reference on."""


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((8,), float(index))


def alive(refs):
    return sorted(name for name, ref in refs.items() if ref() is not None)


@habit
def batch_loss_and_graph_after_each_step():
    gc.disable()
    model, found = net(), []
    optimizer = torch.optim.Adam(model.parameters())
    batches = iter(DataLoader(Rows(), batch_size=4))
    for _ in range(5):
        x = next(batches)
        with step(model):
            optimizer.zero_grad()
            canary = Canary()
            y = model(x)
            loss = Keeps.apply(y, canary).sum()
            refs = {"batch": weakref.ref(x), "output": weakref.ref(y), "loss": weakref.ref(loss)}
            refs["graph"] = weakref.ref(canary)
            loss.backward()
            optimizer.step()
        del x, y, loss, canary
        found.append(alive(refs))
    gc.enable()
    return found


@habit
def a_graph_that_was_never_walked():
    gc.disable()
    model, canary = net(), Canary()
    with step(model):
        loss = Keeps.apply(model(torch.ones(2, 8)), canary).sum()
        refs = {"graph": weakref.ref(canary), "loss": weakref.ref(loss)}
    del loss, canary
    found = alive(refs)
    gc.enable()
    return found


@habit
def models_and_optimizers():
    gc.disable()
    found = []
    for _ in range(3):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        refs = {"model": weakref.ref(model), "inner": weakref.ref(model[0]), "parameter": weakref.ref(model[0].weight)}
        refs["optimizer"] = weakref.ref(optimizer)
        for _ in range(2):
            with step(model):
                model(torch.ones(2, 8)).sum().backward()
                optimizer.step()
        del model, optimizer
        found.append(alive(refs))
    gc.enable()
    return found


@habit
def a_model_freed_inside_its_step():
    gc.disable()
    model = net()
    ref = weakref.ref(model)
    context = step()
    with context:
        with step(model):
            model(torch.ones(2, 8))
        del model
        found = ref() is None
    gc.enable()
    return found


@habit
def a_model_whose_step_raised():
    gc.disable()

    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("mine")

    model = Broken()
    ref = weakref.ref(model)
    try:
        with step(model):
            model(torch.ones(1))
    except ValueError as error:
        message = str(error)
    del model
    found = ref() is None
    gc.enable()
    return [message, found]


@habit
def loaders_and_their_iterators():
    gc.disable()
    found = []
    for _ in range(3):
        data = Rows()
        loader = DataLoader(data, batch_size=4)
        iterator = iter(loader)
        first = next(iterator)
        refs = {"data": weakref.ref(data), "loader": weakref.ref(loader), "iterator": weakref.ref(iterator)}
        refs["batch"] = weakref.ref(first)
        del first
        rest = sum(1 for _ in iterator)
        del data, loader, iterator
        found.append([rest, alive(refs)])
    gc.enable()
    return found


@habit
def a_step_that_is_used_again():
    model = net()
    ref = weakref.ref(model)
    for _ in range(3):
        with step(model):
            model(torch.ones(2, 8)).sum().backward()
    del model
    return ref() is None


@habit
def many_models_leave_nothing():
    def count():
        return sum(1 for found in gc.get_objects() if issubclass(type(found), nn.Module))

    gc.collect()
    before = count()
    for _ in range(40):
        model = net()
        with step(model):
            model(torch.ones(2, 8)).sum().backward()
    del model
    gc.collect()
    return count() - before


if __name__ == "__main__":
    run()
