"""Names the collectives that the script calls itself, with the line, once one of them has waited a millisecond."""

from __future__ import annotations

import os
from typing import Any, Final, Optional

from traceml.recorder.pen import Pen
from traceml.schema.syncs import CollectiveWait

_MAX_TOLD: Final = 16  # places in the script
_MAX_LOOKS: Final = 512  # waits of frameworks are long, too, and are no call of the script's
_MAX_FRAMES: Final = 64
_TORCH: Final = f"{os.sep}torch{os.sep}"
_OURS: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep  # noqa: PTH120
#: Where what a script calls to communicate is defined; a wait under a model's call or a backward is torch's own.
_PUBLIC: Final = ("distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py", "functional.py")
_FUNCTIONAL: Final = "functional collective"
_SHELLS: Final = ("c10d_logger.py", "_contextlib.py")  # decorators around the function that was called


class Calls:
    """The places in the script that wait, each told once."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._told: set[tuple[str, str, int]] = set()
        self._num_looks = 0

    def waited(self, at_s: float, took_s: float, frame: Any) -> None:
        """A wait of 1 ms or more ended in this frame, on the edges' clock."""
        self._num_looks += 1
        if self._num_looks > _MAX_LOOKS or len(self._told) >= _MAX_TOLD:
            return
        place = place_of(frame)
        if place is not None and place not in self._told:
            self._told.add(place)
            call, path, line = place
            where = f"{os.path.basename(path)}:{line}"  # noqa: PTH119  # no pathlib on the training side
            self._pen.ring.send(CollectiveWait(int(at_s * 1e9), int(took_s * 1e9), call, where))


def place_of(frame: Any) -> Optional[tuple[str, str, int]]:
    """What was called from this frame's callers, in which file and line; None where torch called it itself."""
    call, last = "wait", ""
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        path = frame.f_code.co_filename
        if _TORCH in path:
            last = path
            if not path.endswith(_SHELLS):
                call = frame.f_code.co_name
        elif not path.startswith(_OURS):
            is_scripts = not last or (f"{_TORCH}distributed{os.sep}" in last and last.endswith(_PUBLIC))
            # A functional collective is waited for where its result is first used: by then nobody knows its name.
            call = _FUNCTIONAL if call.startswith("__") else call
            return (call, path, frame.f_lineno) if is_scripts or last.endswith(_SHELLS) else None
        frame = frame.f_back
    return None
