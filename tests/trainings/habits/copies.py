"""Copies, pickles and saves models, in every place a training does."""

import copy
import io
import pickle
import pickletools
import sys

import torch
from stages import digest, habit, net, run, step, train
from torch import nn


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


def is_its_own(copied, model):
    """Whether the copy computes with its own weights: what it gives changes with them, and only with them."""
    x = torch.randn(4, 8)
    with torch.no_grad():
        before = copied(x)
        for p in model.parameters():
            p.add_(1.0)
        same = torch.equal(copied(x), before)
        for p in copied.parameters():
            p.add_(1.0)
        return same and not torch.equal(copied(x), before)


@habit
def a_deep_copy_from_before_the_watching():
    model = net()
    copied = copy.deepcopy(model)
    yield
    losses = train(model)
    found = [is_its_own(copied, model), train(copied), losses]
    yield
    yield [*found, digest(copied), digest(model), train(copied)]


@habit
def a_deep_copy_before_the_first_step():
    model = net()
    copied = copy.deepcopy(model)
    return [train(model), is_its_own(copied, model), train(copied)]


@habit
def deep_copies_inside_a_step():
    model, copies = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with step(model):
        copies.append(copy.deepcopy(model))
        loss = model(torch.randn(4, 8)).sum()
        copies.append(copy.deepcopy(model))
        loss.backward()
        copies.append(copy.deepcopy(model))
        optimizer.step()
        copies.append(copy.deepcopy(model))
        inside = [is_its_own(c, model) for c in copies]
    names = [sorted(c.__dict__) for c in copies]
    return [inside, names, [train(c) for c in copies], [digest(c) for c in copies]]


@habit
def a_deep_copy_after_a_step_and_of_a_copy():
    model = net()
    train(model)
    copied = copy.deepcopy(copy.deepcopy(model))
    return [is_its_own(copied, model), train(copied), train(model)]


@habit
def an_average_that_is_evaluated_with_its_own_weights():
    model = net()
    ema, seen = copy.deepcopy(model), []

    def update():
        with torch.no_grad():
            for mine, theirs in zip(ema.parameters(), model.parameters()):
                mine.lerp_(theirs, 0.1)
            seen.append(torch.equal(ema(torch.ones(1, 8)), model(torch.ones(1, 8))))
            seen.append(ema(torch.ones(1, 8)).tolist())

    return [train(model, inside=update), seen, digest(ema)]


@habit
def an_optimizer_copied_with_its_model():
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer=optimizer)
    both = copy.deepcopy((model, optimizer))
    return [train(both[0], optimizer=both[1]), train(model, optimizer=optimizer), digest(both[0])]


@habit
def a_shallow_copy():
    model, found = net(), []

    def inside():
        found.append(copy.copy(model))

    train(model, inside=inside)
    shallow = found[0]
    shallow._modules = dict(shallow._modules)
    shallow._modules["2"] = nn.Linear(16, 3)
    shape, same = shallow(torch.ones(1, 8)).shape, torch.equal(found[1](torch.ones(1, 8)), model(torch.ones(1, 8)))
    del model
    return [list(shape), same, list(found[2](torch.ones(1, 8)).shape), train(found[2])]


class OwnState(nn.Module):
    """Keeps its whole __dict__ in its state, as many do."""

    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x):
        return self.body(x)

    def __getstate__(self):
        return self.__dict__.copy()

    def __setstate__(self, state):
        self.__dict__.update(state)


@habit
def copies_of_a_class_with_its_own_state():
    model, found = OwnState(), []
    train(model, inside=lambda: found.append((copy.deepcopy(model), pickle.loads(pickle.dumps(model)))))
    return [[is_its_own(one, model) for one in pair] for pair in found] + [train(found[0][0]), train(found[0][1])]


@habit
def a_shallow_copy_of_a_class_with_its_own_state():
    model, found = OwnState(), []
    train(model, inside=lambda: found.append(copy.copy(model)))
    shallow = found[0]
    shallow._modules = {"body": nn.Linear(8, 3)}
    shape = list(shallow(torch.ones(1, 8)).shape)
    del model
    return [shape, list(found[1](torch.ones(1, 8)).shape), train(shallow)]


class OwnDeepCopy(nn.Module):
    """Copies itself attribute by attribute, as recipes on the web do."""

    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x):
        return self.body(x)

    def __deepcopy__(self, memo):
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            made.__dict__[name] = copy.deepcopy(value, memo)
        return made


@habit
def copies_of_a_class_with_its_own_deep_copy():
    model, found = OwnDeepCopy(), []
    train(model, inside=lambda: found.append(copy.deepcopy(model)))
    return [[is_its_own(one, model) for one in found], train(found[0]), digest(found[1])]


def words(pickled):
    """The names and the kinds of instruction in a pickle; the bytes of a tensor's own pickle vary from run to run."""
    found = list(pickletools.genops(pickled))
    return [len(found), digest([op.name for op, _, _ in found]), sorted({a for _, a, _ in found if type(a) is str})]


@habit
def pickles_hold_the_same_words():
    model, found = net(), []
    found.append(words(pickle.dumps(model)))
    train(model, inside=lambda: found.append(words(pickle.dumps(model))))
    again = pickle.loads(pickle.dumps(model))
    return [found, train(again), b"traceml" in pickle.dumps(model)]


@habit
def saved_models_are_the_same_bytes():
    model, found = net(), []
    train(model, inside=lambda: found.append(digest(saved(model))))
    again = torch.load(io.BytesIO(saved(model)), weights_only=False)
    return [found, b"traceml" in saved(model), train(again), is_its_own(again, model)]


@habit
def a_saved_class_with_its_own_state():
    model, found = OwnState(), []
    train(model, inside=lambda: found.append(saved(model)))
    again = torch.load(io.BytesIO(found[0]), weights_only=False)
    return [b"traceml" in found[0], train(again)]


@habit
def a_model_on_disk():
    """The test loads it in a process that cannot import traceml."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters())

    def inside():
        torch.save({"model": model, "optimizer": optimizer, "state": optimizer.state_dict()}, "inside.pt")

    train(model, optimizer=optimizer, inside=inside)
    torch.save(model, "after.pt")
    return digest(model)


@habit
def optimizers_and_schedulers_pickle():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    found = []

    def inside():
        found.append(b"traceml" in pickle.dumps((optimizer, scheduler)))

    train(model, optimizer=optimizer, inside=inside)
    again, _ = pickle.loads(pickle.dumps((optimizer, scheduler)))
    again.step()
    return [found, sorted(optimizer.__dict__), sorted(again.__dict__), again.state_dict()["param_groups"]]


@habit
def state_dicts_hold_the_same_names_and_values():
    model, found = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer=optimizer, inside=lambda: found.append((list(model.state_dict()), digest(model))))
    fresh = net()
    fresh.load_state_dict(model.state_dict())
    return [found, digest(fresh), digest(repr(optimizer.state_dict())), [n for n, _ in model.named_modules()]]


@habit
def a_loader_is_copied_and_pickled():
    data = torch.utils.data.TensorDataset(torch.arange(12.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    first = [b[0].tolist() for b in loader]
    again = [b[0].tolist() for b in pickle.loads(pickle.dumps(loader))]
    copied = [b[0].tolist() for b in copy.deepcopy(loader)]
    return [first, again, copied, words(pickle.dumps(loader)), sorted(iter(loader).__dict__)]


@habit
def a_model_in_shared_memory_and_of_another_type():
    model = net()
    train(model)
    model.share_memory()
    model.double()
    with step(model):
        y = model(torch.ones(2, 8, dtype=torch.double))
    model.float()
    return [str(y.dtype), train(model), all(p.is_shared() for p in model.parameters())]


def replica_of(module):
    """As `torch.nn.parallel.replicate` makes one, for a machine without devices."""
    made = module._replicate_for_data_parallel()
    for name, child in module._modules.items():
        made._modules[name] = replica_of(child)
    for name, parameter in module._parameters.items():
        made._parameters[name] = None if parameter is None else torch.nn.Parameter(parameter.detach().clone())
    return made


@habit
def replicas_inside_a_training():
    model, found = net(), []

    def inside():
        replica = replica_of(model)
        found.append([type(replica).__name__, sorted(replica.__dict__), is_its_own(replica, model)])

    return [train(model, inside=inside), found, digest(model)]


@habit
def shared_memory_inside_a_training():
    model, found = net(), []
    losses = train(model, inside=lambda: found.append(all(p.is_shared() for p in model.share_memory().parameters())))
    return [losses, found, train(model), digest(copy.deepcopy(model))]


@habit
def torchscript_inside_a_training():
    model, found, x = net(), [], torch.ones(2, 8)

    def inside():
        for made in (torch.jit.script(model), torch.jit.trace(model, x)):
            found.append([made(x).tolist(), sorted(name for name, _ in made.named_parameters())])

    return [train(model, inside=inside), found, train(torch.jit.script(model)), digest(model)]


if __name__ == "__main__":
    sys.modules.setdefault("copies", sys.modules["__main__"])
    run()
