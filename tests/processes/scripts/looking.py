"""Prints what a script can see of the Python it runs in, before and after a training, and in a spawned child."""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import multiprocessing
import pickle
import pickletools
import pkgutil
import sys
from pathlib import Path


class Thing:
    """Pickled by its place in `__main__`."""


def look(where: str) -> None:
    main = sys.modules["__main__"]
    print(where, "argv", sys.argv)
    print(where, "path", sys.path)
    print(where, "main", getattr(main, "__file__", None), main.__spec__, __name__)
    print(where, "flags", sys.flags)
    print(where, "sitecustomize", "sitecustomize" in sys.modules, getattr(sys, "user_site", None))
    print(where, "hooks", sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile(), sys.path_hooks)
    print(where, "pickle", pickle.dumps(Thing()))


def main() -> None:
    look("start")
    print("torch is there", importlib.util.find_spec("torch") is not None, importlib.util.find_spec("no_such") is None)
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    print("spec", repr(spec), type(spec.loader))
    print("distribution", importlib.metadata.version("torch"), len(list(importlib.metadata.distributions())))
    print("modules", sum(1 for _ in pkgutil.iter_modules()))
    import torch

    print("torch", torch.__spec__, torch.__loader__, type(torch.__spec__).__name__)
    look("torch")
    print("finders", sys.meta_path)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    look("trained")
    # The slot of `Module.compile()` may be taken: it is where we stand, and the one name that copies and files leave
    # behind. They hold every name and word that a bare run's hold; the numbers in a tensor's pickle are its addresses.
    names = [name for name in model.__dict__ if name != "_compiled_call_impl"]
    words = [(op.name, arg) for op, arg, _ in pickletools.genops(pickle.dumps(model)) if not str(arg).isdigit()]
    print(model.weight, names, sorted(optimizer.__dict__), list(copy.deepcopy(model).__dict__))
    print([(name, word) for name, word in words if isinstance(word, (str, type(None)))])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(seen_by_child))


def seen_by_child() -> tuple[object, ...]:
    return sys.argv, sys.path, str(sys.flags), __name__, str(Path.cwd())


if __name__ == "__main__":
    main()
