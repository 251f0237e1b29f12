"""Forks and spawns workers and children, with threads beside, in the middle of a training."""

import gc
import logging
import multiprocessing
import os
import queue
import subprocess
import sys
import threading

import stages
import torch
from stages import digest, habit, net, run, step, train
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Rows(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.rand(8) + index


class Broken(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise ValueError("row 5 is broken")
        return torch.ones(8)


class Trains(Dataset):
    """Runs a module, a backward and a save in the worker, as feature extractors do."""

    def __init__(self):
        self.model = torch.nn.Linear(4, 8)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        with step(self.model):
            y = self.model(torch.full((4,), float(index)))
            y.sum().backward()
        return torch.cat([y.detach(), torch.tensor([float(get_worker_info().id)])])


def epochs(loader, num_epochs=2):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found = []
    for _ in range(num_epochs):
        for x in loader:
            with step(model):
                optimizer.zero_grad()
                loss = model(x[:, :8]).square().mean()
                loss.backward()
                optimizer.step()
            found.append(loss.item())
    return found


@habit
def forked_workers():
    return epochs(DataLoader(Rows(), batch_size=4, num_workers=2))


@habit
def persistent_workers_with_prefetch():
    return epochs(DataLoader(Rows(), batch_size=4, num_workers=2, persistent_workers=True, prefetch_factor=4))


@habit
def spawned_workers():
    return epochs(DataLoader(Rows(), batch_size=8, num_workers=1, multiprocessing_context="spawn"), num_epochs=1)


@habit
def workers_that_train():
    return epochs(DataLoader(Trains(), batch_size=2, num_workers=2))


@habit
def a_worker_that_raises():
    try:
        epochs(DataLoader(Broken(), batch_size=4, num_workers=1))
    except ValueError as error:
        return str(error).splitlines()[-1]
    finally:
        gc.collect()  # a cycle of torch: its iterator must not die in a forked child


def child(answers):
    model = net()
    answers.put(train(model))


@habit
def a_forked_child_that_trains_inside_a_step():
    context = multiprocessing.get_context("fork")
    answers, model = context.SimpleQueue(), net()
    with step(model):
        process = context.Process(target=child, args=(answers,))
        process.start()
        process.join(60)
        model(torch.ones(1, 8)).sum().backward()
    return [process.exitcode, answers.get(), train(model)]


@habit
def a_bare_fork_inside_a_step():
    model = net()
    with step(model):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                model(torch.ones(1, 8)).sum().backward()
                code = 7
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        model(torch.ones(1, 8)).sum().backward()
    return [os.WEXITSTATUS(status), train(model)]


@habit
def a_fork_inside_a_forward_and_inside_a_fetch():
    class Forking(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def forward(self, x):
            pid = os.fork()
            if not pid:
                os._exit(3)
            os.waitpid(pid, 0)
            return self.body(x)

    class ForkingRows(Rows):
        def __getitem__(self, index):
            pid = os.fork()
            if not pid:
                os._exit(3)
            return super().__getitem__(index) + os.WEXITSTATUS(os.waitpid(pid, 0)[1])

    found = [x.sum().item() for x in DataLoader(ForkingRows(), batch_size=12)]
    return [train(Forking()), found]


@habit
def threads_that_fetch_and_log_while_workers_fork():
    """A lock that another thread holds while we fork is held for ever in the child: none of ours may be."""
    stop, seen = threading.Event(), queue.Queue()
    logger = logging.getLogger("noise")
    logger.addHandler(logging.NullHandler())

    def noise():
        while not stop.is_set():
            for x in DataLoader(torch.arange(8.0), batch_size=4):
                logger.warning("fetched %s", x)
            model = net()
            with step(model):
                model(torch.ones(1, 8)).sum().backward()
            seen.put(1)

    threads = [threading.Thread(target=noise, daemon=True) for _ in range(2)]
    stages.is_contended = True
    for thread in threads:
        thread.start()
    found = [epochs(DataLoader(Rows(), batch_size=4, num_workers=2, timeout=30), num_epochs=1) for _ in range(4)]
    stop.set()
    for thread in threads:
        thread.join(30)
    stages.is_contended = False
    return [[len(losses) for losses in found], any(t.is_alive() for t in threads), seen.qsize() > 0]


@habit
def a_pool_and_a_subprocess():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        squares = pool.map(abs, [-1, -2, 3])
    code = "import sys; print('traceml.recorder' in sys.modules, sys.argv)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return [squares, done.returncode, done.stdout, done.stderr]


@habit
def what_was_random_in_workers_is_the_same():
    torch.manual_seed(3)
    found = [x.tolist() for x in DataLoader(Rows(), batch_size=6, num_workers=2, shuffle=True)]
    return [digest(found), digest(torch.get_rng_state())]


if __name__ == "__main__":
    run()
