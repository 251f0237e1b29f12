"""Differentiates, transforms, scripts, exports and checkpoints models, and asks functions for their names."""

import inspect
import pickle

import torch
from stages import digest, habit, net, run, step, train
from torch.utils.checkpoint import checkpoint


def grads(model):
    return digest([p.grad.tolist() if p.grad is not None else None for p in model.parameters()])


@habit
def functional_calls_use_the_parameters_they_are_given():
    model = net()
    others = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    with step(model):
        given = torch.func.functional_call(model, others, (torch.ones(2, 8),))
        own = model(torch.ones(2, 8))
        own.sum().backward()
    return [given.tolist(), own.tolist(), grads(model)]


@habit
def transforms_of_functions():
    from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vmap

    model = net()
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params, x):
        return functional_call(model, params, (x,)).square().sum()

    x = torch.randn(5, 8)
    models = [net() for _ in range(3)]
    stacked, _ = stack_module_state(models)
    with step(model, *models):
        per_sample = vmap(grad(loss), in_dims=(None, 0))(params, x)
        jacobian = jacrev(model)(x[0])
        curvature = hessian(lambda x: model(x).sum())(x[0])
        value, tangent = jvp(model, (x,), (torch.ones_like(x),))
        ensemble = vmap(lambda p, x: functional_call(models[0], p, (x,)), in_dims=(0, None))(stacked, x)
    parts = [*per_sample.values(), jacobian, curvature, value, tangent, ensemble]
    return [[digest(part.detach()) for part in parts], train(model)]


@habit
def torch_script_of_a_model():
    model, found = net(), []
    x = torch.ones(2, 8)

    def inside():
        scripted = torch.jit.script(model)
        traced = torch.jit.trace(model, x)
        found.append([digest(scripted(x).detach()), digest(traced(x).detach()), digest(str(scripted.inlined_graph))])

    losses = train(model, num_steps=2, inside=inside)
    inside()
    scripted = torch.jit.script(model)
    return [losses, found, train(scripted), train(torch.jit.trace(model, x))]


@habit
def graphs_of_a_model():
    model, found = net(), []

    def inside():
        graph = torch.fx.symbolic_trace(model)
        exported = torch.export.export(model, (torch.ones(2, 8),))
        found.append([graph.code, str(exported.graph), list(exported.state_dict)])

    return [train(model, num_steps=2, inside=inside), found]


@habit
def activation_checkpointing():
    found = []
    for reentrant in (True, False):
        model, calls = net(), []
        model.register_forward_pre_hook(lambda *_, calls=calls: calls.append("pre"))
        model.register_forward_hook(lambda *_, calls=calls: calls.append("post"))
        for _ in range(3):
            with step(model):
                x = torch.randn(4, 8, requires_grad=True)
                y = checkpoint(model, x, use_reentrant=reentrant)
                (y.square().sum() + model(x).sum()).backward()
        found.append([calls.count("pre"), calls.count("post"), grads(model), digest(x.grad)])
    return found


@habit
def gradients_of_gradients():
    model, losses = net(), []
    for _ in range(3):
        with step(model):
            x = torch.randn(4, 8, requires_grad=True)
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            loss = slope.square().sum()
            loss.backward()
        losses.append(loss.item())
    return [losses, grads(model), torch.autograd.gradcheck(lambda x: x.sin(), torch.ones(2).double().requires_grad_())]


@habit
def functions_are_called_what_they_are_called():
    functions = [torch.save, torch.serialization.save, torch.utils.data.DataLoader.__iter__, torch.autograd.backward]
    functions += [torch.utils.data.dataloader._BaseDataLoaderIter.__next__, torch.nn.Module.__call__]
    functions += [torch.optim.SGD.step, torch.Tensor.backward]
    return [
        [(f.__module__, f.__name__, f.__qualname__, f.__doc__, str(inspect.signature(f))) for f in functions],
        torch.save is torch.serialization.save,
        [digest(inspect.getsource(f)) for f in functions],
        [pickle.loads(pickle.dumps(f)) is f for f in functions],
    ]


if __name__ == "__main__":
    run()
