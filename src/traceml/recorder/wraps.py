"""Wraps by hand what no hook sees: any loader, a copy to the device, a model, a backward, a foreign optimizer.

Without a recording, what is wrapped works as if it were not. A phase that is watched anyway is counted once.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Final, Optional

from traceml.recorder import step
from traceml.recorder.hooks import backward, compiled, forward, loader, optimizer
from traceml.recorder.pen import Pen
from traceml.recorder.proxy import Proxy, inner_of, is_proxy, wrapped
from traceml.schema import phases
from traceml.wire import edges

_HOOK: Final = "wrap"
_CODES: Final = {phases.H2D: edges.H2D, phases.BACKWARD: edges.BACKWARD, phases.OPTIMIZER: edges.OPTIMIZER}

_NOT_WRAPPED: Final = {
    phases.H2D: "wrap_h2d() of a {kind} watches nothing: wrap the function that copies it, copy = wrap_h2d(copy).",
    phases.FORWARD: "wrap_forward() of a {kind} watches nothing: give it a model, or what is called for one.",
    phases.BACKWARD: "wrap_backward() of a {kind} watches nothing: give it a loss, or what is called for a backward.",
}

_models = forward.Attached()  # given to wrap_forward: seen in every later run of this process too
_optimizers = forward.Attached()


def renew(pen: Pen) -> None:
    """A session begins: what was wrapped before is watched in it."""
    for model in _models:
        _watch_model(pen, model)
    for one in _optimizers:
        _watch_optimizer(pen, one)


def wrap_dataloader(batches: Any) -> Any:
    """Stands for a loader, any iterable or a generator of batches: waiting for its next batch is `input`."""
    pen = step.current
    if is_proxy(batches) or (pen is not None and pen.guard.is_on(loader.HOOK) and _is_torch_loader(batches)):
        return batches
    if hasattr(type(batches), "__next__"):
        return wrapped(_Batches, batches)
    return wrapped(_Loader, batches)


def wrap_h2d(batch: Any) -> Any:
    """Stands for a batch: its `.to()` and `.cuda()` are `h2d`; or for a function that copies one."""
    if is_proxy(batch):
        return batch
    if hasattr(batch, "to") or hasattr(batch, "cuda"):
        return wrapped(_Batch, batch)
    return _timed(batch, phases.H2D)


def wrap_forward(model: Any) -> Any:
    """Watches a model's call, or that of any other callable; returns the model itself, or what is to be called."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return _timed(model, phases.FORWARD)
    _models.add(model)
    if step.current is not None:
        _watch_model(step.current, model)
    return model


def wrap_backward(loss: Any) -> Any:
    """Stands for a loss, or whatever has or is a backward: calling `.backward()` on it, or itself, is `backward`."""
    pen = step.current
    if _is_tensor(loss) and (pen is None or pen.guard.is_on(backward.HOOK)):
        return loss  # it is seen anyway, or nothing is: a loss that is a tensor can do more
    if hasattr(loss, "backward"):
        return wrapped(_Loss, loss)
    return _timed(loss, phases.BACKWARD)


def wrap_optimizer(one: Any) -> Any:
    """Watches an optimizer's steps; returns torch's own itself, and for any other what stands for it."""
    if is_proxy(one):
        return one
    if _is_torch_optimizer(one):
        _optimizers.add(one)
        if step.current is not None:
            _watch_optimizer(step.current, one)
        return one
    if step.current is not None and step.current.guard.is_on(optimizer.HOOK) and _is_of_torch(one):
        return one  # before torch 2.0: it is seen anyway
    return wrapped(_Optimizer, one)


class _Batches(Proxy):
    """An iterator whose fetches are stamped."""

    __slots__ = ()

    def __iter__(self) -> Any:
        inner = inner_of(self)
        again = iter(inner)
        return self if again is inner else wrapped(_Batches, again)

    def __next__(self) -> Any:
        inner, pen = inner_of(self), step.current
        if pen is None or pen.who() != pen.owner or pen.busy:
            return next(inner)
        try:
            if id(self) != pen.iterator:
                _watch(pen, phases.INPUT, phases.EVAL)
                loader.loaders_of(pen).switch(self, lambda _: loader.settings_of_foreign(inner))
            pen.stamp(edges.INPUT)
            pen.busy = True
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(loader.HOOK, error)
            return next(inner)
        code = edges.CLOSE_NO_BATCH
        try:
            batch = next(inner)
            code = edges.INPUT + edges.CLOSE
        except BaseException as error:
            if not isinstance(error, StopIteration):
                pen.raised()
            raise
        finally:
            pen.busy = False
            _close(pen, code, loader.HOOK)
        if pen.look is not None:
            loader.loaders_of(pen).look(batch)
        return batch


class _Loader(Proxy):
    """A loader whose iterators are watched."""

    __slots__ = ()

    def __iter__(self) -> Any:
        inner, pen = inner_of(self), step.current
        if pen is None or pen.who() != pen.owner or pen.busy:
            return wrapped(_Batches, iter(inner))
        try:
            _watch(pen, phases.INPUT, phases.EVAL)
            loaders = loader.loaders_of(pen)
            serial = loaders.start(inner, loader.settings_of_foreign)
            pen.stamp(edges.ITERATOR)
            pen.busy = True
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(loader.HOOK, error)
            return wrapped(_Batches, iter(inner))
        try:
            batches = wrapped(_Batches, iter(inner))
        except BaseException:
            pen.raised()
            raise
        finally:
            pen.busy = False
            _close(pen, edges.ITERATOR + edges.CLOSE, loader.HOOK)
        loaders.started(batches, serial)
        return batches


class _Batch(Proxy):
    """A batch whose copies are stamped; what a copy gives is the batch's own."""

    __slots__ = ()

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As the batch's own."""
        return _copying(inner_of(self).to, args, kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> Any:
        """As the batch's own."""
        return _copying(inner_of(self).cuda, args, kwargs)


class _Optimizer(Proxy):
    """An optimizer whose steps are stamped; what a closure does inside is forward and backward as ever."""

    __slots__ = ()

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own."""
        inner = inner_of(self)
        answer = _between(phases.OPTIMIZER, inner.step, args, kwargs, is_whole=False)
        pen = step.current
        if pen is not None and pen.infers:
            pen.has_updated(inner, args, kwargs)
        return answer


class _Loss(Proxy):
    """A loss, or an engine, whose backward is stamped; everything else is its own."""

    __slots__ = ()

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """As the inner one's own."""
        return _between(phases.BACKWARD, inner_of(self).backward, args, kwargs)


def _timed(call: Callable[..., Any], phase: str) -> Callable[..., Any]:
    if not callable(call):
        if step.current is not None:
            step.current.say_once(f"{_HOOK} {phase}", _NOT_WRAPPED[phase].format(kind=type(call).__name__))
        return call

    @functools.wraps(call, updated=())
    def timed(*args: Any, **kwargs: Any) -> Any:
        return _copying(call, args, kwargs) if phase == phases.H2D else _between(phase, call, args, kwargs)

    return timed


def _copying(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A copy by hand: what the hook would see of it, tensor by tensor, is inside."""
    pen = step.current
    if pen is None or pen.is_copying or pen.who() != pen.owner:
        return call(*args, **kwargs)
    pen.is_copying = True
    try:
        return _between(phases.H2D, call, args, kwargs, is_whole=False)
    finally:
        pen.is_copying = False


def _between(
    phase: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, is_whole: bool = True
) -> Any:
    """Calls between two edges; `is_whole`: whatever happens inside belongs to it."""
    pen = step.current
    if pen is None or pen.who() != pen.owner or (is_whole and pen.busy):
        return call(*args, **kwargs)
    code = None
    try:
        _watch(pen, phase)
        code = _forward_code(pen) if phase == phases.FORWARD else _CODES[phase]
        if code is not None:
            pen.stamp(code)
            pen.busy |= is_whole
    except BaseException as error:  # noqa: BLE001  # guard
        pen.guard.fault(_HOOK, error)
    if code is None:
        return call(*args, **kwargs)
    try:
        return call(*args, **kwargs)
    except BaseException:
        pen.raised()
        raise
    finally:
        if is_whole:
            pen.busy = False
        _close(pen, code + edges.CLOSE, _HOOK)


def _close(pen: Pen, code: int, hook: str) -> None:
    try:
        pen.stamp(code)
    except BaseException as error:  # noqa: BLE001  # guard
        pen.guard.fault(hook, error)


def _forward_code(pen: Pen) -> Optional[int]:
    torch = sys.modules.get("torch")
    with_grad = torch is None or torch.is_grad_enabled()
    if pen.in_step:
        return edges.FORWARD if with_grad else edges.FORWARD_NO_GRAD
    if pen.infers:
        pen.num_forwards += 1
        return edges.FORWARD if with_grad else edges.EVAL
    return None if with_grad else edges.EVAL


def _watch(pen: Pen, *names: str) -> None:
    """These phases are watched from now on; said in the ring, once."""
    if not set(pen.watched).issuperset(names):
        pen.tell(watched=names)


def _watch_model(pen: Pen, model: Any) -> None:
    try:
        if pen.forward_class is None:
            why_not = forward.install(pen)
            compiled.install(pen)
            pen.tell(watched=() if why_not else (phases.FORWARD, phases.EVAL))
        forward.attach(pen, model, asked=True)
    except BaseException as error:  # noqa: BLE001  # guard
        pen.guard.fault(forward.HOOK, error)


def _watch_optimizer(pen: Pen, one: Any) -> None:
    try:
        optimizer.watch_one(pen, one)
        pen.tell(watched=(phases.OPTIMIZER,))
    except BaseException as error:  # noqa: BLE001  # guard
        pen.guard.fault(optimizer.HOOK, error)


def _is_of_torch(one: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(one, torch.optim.Optimizer)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_torch_loader(batches: Any) -> bool:
    module = sys.modules.get("torch.utils.data")
    return module is not None and isinstance(batches, module.DataLoader)


def _is_torch_optimizer(one: Any) -> bool:
    """Whether torch's own hooks can be put on it: a subclass that never ran `Optimizer.__init__` has none."""
    return "_optimizer_step_pre_hooks" in getattr(one, "__dict__", {}) and hasattr(one, "register_step_pre_hook")
