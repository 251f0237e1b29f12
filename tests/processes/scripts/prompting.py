"""Uses the terminal as scripts do, in the way that the command line names."""

from __future__ import annotations

import getpass
import importlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def say(text: str, end: str = "\n") -> None:
    """At once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def ask() -> None:
    """`input()`, twice, typed ahead of the second."""
    say(f"hello {input('name? ')}")
    time.sleep(0.5)
    say(f"and {input('again? ')}")


def debug() -> None:
    """A breakpoint, with readline's history."""
    answer = 41
    breakpoint()  # noqa: T100  # the behaviour under test
    say(f"the answer is {answer + 1}")


def secret() -> None:
    """A password."""
    say(f"{len(getpass.getpass('password? '))} characters")


def wait_for_key() -> None:
    """`select` on stdin, which no view could know of."""
    select.select([sys.stdin], [], [])
    say(f"pressed {sys.stdin.readline().strip()}")


def see() -> None:
    """What the script finds of its terminal."""
    terminals = [os.isatty(fd) for fd in (0, 1, 2)]
    size = os.get_terminal_size(terminals.index(True))
    say(f"size {size.lines}x{size.columns} tty {terminals} COLUMNS {os.environ.get('COLUMNS')}")
    with Path("/dev/tty").open("w", encoding="utf-8") as tty:
        tty.write("to /dev/tty\n")


def resized() -> None:
    """Says its size whenever it changes."""
    signal.signal(signal.SIGWINCH, lambda *_: say(f"now {os.get_terminal_size().lines}"))
    say("ready")
    time.sleep(3)


def count() -> None:
    """Many lines."""
    for number in range(int(sys.argv[2])):
        say(f"line {number}")


def bars() -> None:
    """Two nested progress bars, and lines between."""
    tqdm: Any = importlib.import_module("tqdm")
    for _ in tqdm.trange(3, desc="outer", leave=True):
        for number in tqdm.trange(20, desc="inner", leave=False):
            time.sleep(0.01)
            if number == 10:
                tqdm.tqdm.write("a line between")


def pager() -> None:
    """Less on a file."""
    subprocess.run(["less", sys.argv[2]], check=False)
    say("back from less")


def messy() -> None:
    """Leaves every mode on, and the line unfinished."""
    say("\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?25l\x1b[31mred and unfinished", end="")
    time.sleep(0.7)


def hidden() -> None:
    """Leaves the other screen on."""
    say("before")
    say("\x1b[?1049h\x1b[Hfull screen", end="")
    time.sleep(0.3)


def full_line() -> None:
    """Fills a line exactly, pauses, goes on."""
    say("x" * os.get_terminal_size().columns, end="")
    time.sleep(2.5)
    say("y")


def saves() -> None:
    """Handles Ctrl-C."""

    def save(*_: object) -> None:
        say("saving")
        sys.exit(7)

    signal.signal(signal.SIGINT, save)
    say("ready")
    time.sleep(30)


def sleep() -> None:
    """Waits, and handles nothing."""
    say("ready")
    time.sleep(30)


def ticks() -> None:
    """A line every 50 ms."""
    for number in range(int(sys.argv[2])):
        say(f"tick {number}")
        time.sleep(0.05)
    say("done")


def unclosed() -> None:
    """Leaves a daemon behind that holds the terminal."""
    subprocess.Popen(["sleep", "5"], start_new_session=True)
    say("the script is over")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
