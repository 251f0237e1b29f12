"""Trains nothing, but writes the ring that a training would: steps of 2 ms, then an end as the command line says."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

from traceml.schema.records import RankEnd, RankIdentity, Watching
from traceml.wire import edges
from traceml.wire.ring import PUBLISHED, RingWriter


class Training:
    """A ring, and steps in it."""

    def __init__(self) -> None:
        manifest = json.loads((Path(os.environ["TRACEML_RUN"]) / "manifest.json").read_text(encoding="utf-8"))
        now = time.perf_counter_ns()
        self.ring = RingWriter(
            Path(manifest["ring_dir"]) / f"{os.getpid()}-0.ring",
            process_start_ns=now,
            anchor_ns=now,
            anchor_wall_ns=time.time_ns(),
        )
        self.ring.send(RankIdentity(0, 0, 1, os.getpid(), now))
        self.ring.send(Watching(("input", "forward", "backward", "optimizer")))
        self.num_edges = 0

    def put(self, code: int, value: float | None = None) -> None:
        """One edge."""
        at = self.num_edges & (self.ring.num_edges - 1)
        self.ring.codes[at] = code
        self.ring.stamps[at] = time.perf_counter() if value is None else value
        self.num_edges += 1

    def step(self, sleep_s: float = 0.002) -> None:
        """One step: half input, half forward."""
        self.put(edges.SERIAL, 1 << edges.SERIAL_BITS)
        self.put(edges.INPUT)
        time.sleep(sleep_s / 2)
        self.put(edges.INPUT + edges.CLOSE)
        self.put(edges.STEP_BEGIN)
        self.put(edges.FORWARD)
        time.sleep(sleep_s / 2)
        self.put(edges.FORWARD + edges.CLOSE)
        for code in (edges.BACKWARD, edges.OPTIMIZER):
            self.put(code)
            self.put(code + edges.CLOSE)
        self.put(edges.STEP_END)
        self.ring.header[PUBLISHED] = self.num_edges

    def goodbye(self, how: str, exception: str = "") -> None:
        """What the recorder says at the interpreter's exit."""
        self.put(edges.RUN_END)
        self.ring.header[PUBLISHED] = self.num_edges
        self.ring.send(RankEnd(0, how, exception, time.perf_counter_ns()))
        self.ring.close()


def say(text: str) -> None:
    """A line on stdout, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """`ring_training.py STEPS HOW [SECONDS A STEP]`."""
    num_steps, how = int(sys.argv[1]), sys.argv[2]
    sleep_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.002
    sys.stdout.buffer.write(b"\xff\x00 raw bytes \r\n")
    if how == "silent":
        say("no step at all")
        return
    training = Training()
    if how == "grandchild":
        child = subprocess.Popen([sys.executable, "-c", "import time; print('child', flush=True); time.sleep(60)"])
        say(f"grandchild {child.pid}")
    if how == "saves":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    try:
        for number in range(num_steps):
            training.step(sleep_s)
            if number == 9:
                say("ready")
        ENDS[how](training)
    except KeyboardInterrupt:
        if how != "interrupts":
            training.goodbye("exception", "KeyboardInterrupt")
            raise
        say("saving")
        time.sleep(0.8)
        say("saved")
        training.goodbye("end")
        sys.exit(7)
    except SystemExit:
        training.goodbye("end")
        raise
    except ValueError:
        training.goodbye("exception", "ValueError")
        raise
    say("trained")


def _raise(_: Training) -> None:
    raise ValueError("the loss is nan")


def _die(signum: int) -> None:
    os.kill(os.getpid(), signum)
    time.sleep(10)


ENDS: dict[str, Callable[[Training], object]] = {
    "end": lambda training: training.goodbye("end"),
    "interrupts": lambda training: training.goodbye("end"),
    "grandchild": lambda training: training.goodbye("end"),
    "saves": lambda training: training.goodbye("end"),
    "exception": _raise,
    "exit7": lambda _: sys.exit(7),
    "_exit3": lambda _: os._exit(3),
    "sigterm": lambda _: _die(signal.SIGTERM),
    "sigkill": lambda _: _die(signal.SIGKILL),
    "sigsegv": lambda _: ctypes.string_at(0),
}

if __name__ == "__main__":
    main()
