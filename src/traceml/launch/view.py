"""Says what a view is: it starts the script on its descriptors, and has a turn whenever something happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Mapping, Optional, Protocol, Sequence

if TYPE_CHECKING:
    import subprocess


@dataclass(frozen=True)
class Job:
    """What is to be run."""

    command: Sequence[str]
    environ: Mapping[str, str]


class View(Protocol):
    """What stands between the script and its descriptors, and tells the user where the run is."""

    @property
    def signals(self) -> tuple[int, ...]:
        """The signals that are the view's own."""

    @property
    def master(self) -> Optional[int]:
        """The end of the script's terminal that must not close before the script ends."""

    @property
    def farewell(self) -> Optional[tuple[int, bytes]]:
        """What gives the terminal back where we are killed, and the descriptor for it."""

    @property
    def fds(self) -> tuple[int, ...]:
        """What the view reads."""

    @property
    def writable_fds(self) -> tuple[int, ...]:
        """Where the view has something to write."""

    @property
    def notes(self) -> tuple[str, ...]:
        """For the user, after the end."""

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        """Starts the script. Raises OSError: the system refuses."""

    def left_s(self) -> Optional[float]:
        """Seconds until the view wants its turn; None: nothing is due."""

    def turn(self, readable: set[int]) -> None:
        """Something is readable, or it is time."""

    def signalled(self, signum: int) -> None:
        """One of the view's signals came."""

    def pass_on(self, signum: int, *, whole_group: bool) -> None:
        """A signal came for the script: to us alone, or to our whole process group."""

    def end(self) -> None:
        """The script has ended: hands on what it left, and puts everything back. Another call does nothing."""
