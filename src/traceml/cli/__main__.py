"""Starts the command that the command line asks for, and turns a user's mistake into one line and exit code 2."""

from __future__ import annotations

import os
import sys
from typing import Optional, Sequence

from traceml.cli.arguments import (
    Arguments,
    AttachArguments,
    CompareArguments,
    RunArguments,
    RunsArguments,
    Told,
    ViewArguments,
    parse,
)
from traceml.cli.speaking import answer, open_missing, tell
from traceml.errors import TraceMLError

_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command `traceml`.

    Args:
        argv: Without the program's name; None: `sys.argv`.

    Returns:
        The exit code: the script's own for `run`; 0; 2 for a mistake (126 or 127: a command that cannot be started);
        1 and 3 of `compare --fail-on regression`; 130 after Ctrl-C; 141 when stdout was closed.
    """
    open_missing()
    try:
        code = _dispatch(parse(sys.argv[1:] if argv is None else argv))
    except TraceMLError as error:
        tell(f"traceml: {_one_line(str(error))}\n")
        return error.code
    except BrokenPipeError:
        # stdout's reader has gone (`| head`): what is still buffered must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


# Each command imports what it needs when it runs: `--help` must answer at once.
def _dispatch(asked: Arguments) -> int:
    if isinstance(asked, RunArguments):
        from traceml.cli.run import run  # noqa: PLC0415  # lazily, see above

        return run(asked)
    if isinstance(asked, AttachArguments):
        from traceml.cli.attach import attach  # noqa: PLC0415  # likewise

        return attach(asked)
    if isinstance(asked, ViewArguments):
        from traceml.cli.view import view  # noqa: PLC0415  # likewise

        return view(asked)
    if isinstance(asked, RunsArguments):
        from traceml.cli.runs import runs  # noqa: PLC0415  # likewise

        return runs(asked)
    if isinstance(asked, CompareArguments):
        from traceml.cli.compare import compare  # noqa: PLC0415  # likewise

        return compare(asked)
    assert isinstance(asked, Told)
    if asked.version:
        from traceml.cli.version import version_text  # noqa: PLC0415  # likewise

        answer(f"{version_text()}\n")
    else:
        answer(asked.text)
    return 0


def _one_line(message: str) -> str:
    return "".join(ch if ch.isprintable() else " " for ch in message)


if __name__ == "__main__":
    sys.exit(main())
