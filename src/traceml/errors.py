"""Names every error TraceML raises, each with a slug that docs/messages.md explains.

TraceMLError
├── UsageError      the command line, or a call's arguments
│   └── CommandError    what `traceml run --` is to start cannot be started
├── SettingsError   a setting's value or name
├── RunError        a run folder, its summary or its database
├── WireError       a ring or a message
└── StateError      a call at the wrong time (a second, different init)
"""

from __future__ import annotations


class TraceMLError(Exception):
    """The base of all our errors.

    Args:
        message: One line: what was wrong, with the value, and the next step.
        slug: The stable name under which docs/messages.md explains it.
    """

    #: The command's exit code.
    code = 2

    def __init__(self, message: str, *, slug: str) -> None:
        super().__init__(message)
        self.slug = slug


class UsageError(TraceMLError):
    """The command line or a call's arguments cannot be understood."""


class CommandError(UsageError):
    """A command cannot be started; `code` is what a shell would say: 127 not found, 126 not executable."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message, slug="no-command")
        self.code = code


class SettingsError(TraceMLError):
    """A setting has a value that cannot be used."""


class RunError(TraceMLError):
    """A run folder, summary or database is missing, damaged, foreign or too new."""


class WireError(TraceMLError):
    """A ring or a message is damaged, foreign or too new."""


class StateError(TraceMLError):
    """A call came at the wrong time."""
