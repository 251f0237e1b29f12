"""Reads the command line: which command, our options, and where the script's own arguments begin."""

from __future__ import annotations

import argparse
import difflib
import math
import shlex
from dataclasses import dataclass, field
from typing import Any, Final, Mapping, NoReturn, Optional, Sequence, Union

from traceml.errors import UsageError

COMMANDS: Final = ("run", "attach", "view", "runs", "compare")
_RUN_USAGE: Final = (
    "traceml run [options] script.py [script args...]\n       traceml run [options] -m package.module [args...]"
    "\n       traceml run [options] -- command [args...]"
)
_RUN_END: Final = "Everything behind the script is the script's: options of ours stand before it."
_NODES: Final = "--nnodes"
_COMPARE_USAGE: Final = (
    "traceml compare [options] BEFORE AFTER\n       traceml compare [options] A1 A2 ... --against B1 B2 ..."
)
_COMPARE_END: Final = """\
exit codes with --fail-on regression: 0 fine, 1 regression (or MIXED, and slower), 2 bad input, 3 undecided or
incomparable (or MIXED, and whether it is slower is open)

Repeats that take turns meet the same drift of the machine:
  t=$(date +%m%d-%H%M%S)
  for i in 1 2 3 4 5; do
    traceml run --mode=summary --run-name old-$t-$i old.py
    traceml run --mode=summary --run-name new-$t-$i new.py
  done
  traceml compare old-$t-1 old-$t-2 old-$t-3 old-$t-4 old-$t-5 \\
    --against new-$t-1 new-$t-2 new-$t-3 new-$t-4 new-$t-5
"""
_MIN_MARGIN: Final = 0.1
_MAX_MARGIN: Final = 50
_END: Final = "`traceml COMMAND --help` shows a command's options."


@dataclass(frozen=True)
class RunArguments:
    """`traceml run`: what to start, and the options for `settings.resolve(command_line=...)` (None: not given)."""

    kind: str  # "script" | "module" | "command"
    target: str  # the script's path, the module's name, or the command
    script_args: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False


@dataclass(frozen=True)
class ViewArguments:
    """`traceml view`: a run folder, a name under logs, or a final_summary.json."""

    run: str
    as_json: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AttachArguments:
    """`traceml attach`: as `view`; None: the newest running run, else the newest."""

    run: Optional[str] = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunsArguments:
    """`traceml runs`: the list of the runs under logs."""

    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CompareArguments:
    """`traceml compare`: run folders, names under logs, or summaries, of both sides."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    fails_on_regression: bool = False
    margin: Optional[float] = None  # a share (0..1)
    shape: str = "text"  # "text" | "json" | "markdown"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """The answer is a text for stdout (`--help`), or the version's line."""

    text: str = ""
    version: bool = False


Arguments = Union[RunArguments, AttachArguments, ViewArguments, RunsArguments, CompareArguments, Told]


def parse(argv: Sequence[str]) -> Arguments:
    """What the command line asks for.

    Args:
        argv: Without the program's own name.

    Raises:
        UsageError: `usage` (unknown option or command, missing value), or `not-built`.
    """
    words = list(argv)
    if not words or words[0] in ("-h", "--help"):
        return Told(_overview().format_help())
    if words[0] in ("-V", "--version"):
        return Told(version=True)
    command, rest = words[0], words[1:]
    if command.startswith("-"):
        raise _unknown("option", command, ("--help", "--version"), "traceml")
    if command not in COMMANDS:
        raise _unknown("command", command, COMMANDS, "traceml")
    return {"run": _run, "attach": _attach, "view": _view, "runs": _runs, "compare": _compare}[command](rest)


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are UsageErrors: one line, with the nearest known option."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{_command(self.prog)}{message}. `{self.prog} --help` shows its options.", slug="usage")

    @property
    def known(self) -> dict[str, argparse.Action]:
        return {text: action for action in self._actions for text in action.option_strings}


def _overview() -> _Parser:
    parser = _Parser(prog="traceml", add_help=False, epilog=_END, usage="traceml COMMAND ...")
    parser.description = "Where each training step's time goes, on which rank, and what to do next."
    commands = parser.add_argument_group("commands")
    commands.add_argument("run", help="start a training script and record it")
    commands.add_argument("attach", help="show a run full screen, live or after its end")
    commands.add_argument("view", help="show the card of a run, finished or running")
    commands.add_argument("runs", help="list the runs in the logs folder")
    commands.add_argument("compare", help="say where the time moved between runs")
    parser.add_argument("-h", "--help", action="store_true", help="show this and exit")
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    return parser


def _run_parser() -> _Parser:
    parser = _Parser(prog="traceml run", allow_abbrev=False, add_help=False, usage=_RUN_USAGE, epilog=_RUN_END)
    parser.description = "Starts a training script unchanged, records it, and shows where its steps' time goes."
    add = parser.add_argument
    add("-h", "--help", action="store_true", help="show this and exit")
    add("-m", dest="module", metavar="MODULE", help="start a module, as python -m does")
    add("--nproc-per-node", "--nproc_per_node", metavar="N", help="start N ranks, as torchrun --standalone does")
    add(
        "--mode",
        metavar="MODE",
        help="cli: live in the terminal, then the card; summary: the card only; dashboard: a page",
    )
    add("--view", metavar="VIEW", help="inline: a panel below the output; full: the whole screen; plain: lines")
    add("--logs-dir", metavar="DIR", help="where run folders are made (logs)")
    add("--run-name", metavar="NAME", help="the run's name (the script's, with date and time)")
    add("--interval", metavar="SECONDS", help="seconds between reports (1)")
    add("--trace-max-steps", metavar="N", help="stop tracing after N steps; the training goes on")
    add("--save-output", action="store_const", const=True, help="keep what the script prints in the run folder")
    add("--check", action="store_true", help="trace 20 steps, then say what is seen of this script and what is not")
    add("--args", metavar="TEXT", help="arguments for the script, in one text")
    return parser


def _run(words: list[str]) -> Arguments:
    parser = _run_parser()
    ours, kind, target, theirs = _split(parser, words)
    found = vars(_parse_options(parser, ours))
    if found["help"]:
        return Told(parser.format_help())
    refuse_unbuilt(found["mode"])
    if kind is None:
        message = "run: which script? Say `traceml run train.py`, `-m package.module`, or `-- command`."
        raise UsageError(message, slug="usage")
    extra = _shell_words(found["args"])
    if kind == "command" and found["nproc_per_node"] is not None:
        message = "run: --nproc-per-node starts a script or a module. Say `traceml run -- torchrun ...` for a command."
        raise UsageError(message, slug="usage")
    names = ("mode", "view", "logs_dir", "run_name", "interval", "trace_max_steps", "save_output", "nproc_per_node")
    options = {name: found[name] for name in names}
    return RunArguments(kind, target, (*extra, *theirs), options, check=found["check"])


def refuse_unbuilt(mode: Optional[str]) -> None:
    """Says of a mode that is designed, but not there yet, that it is not, wherever the mode was chosen.

    Raises:
        UsageError: `not-built`.
    """
    if mode == "dashboard":
        message = "--mode=dashboard is not built yet. Use --mode=cli or --mode=summary."
        raise UsageError(message, slug="not-built")


def _split(parser: _Parser, words: list[str]) -> tuple[list[str], Optional[str], str, list[str]]:
    """Our options, then what is to be started, and the arguments that are its own."""
    known, at = parser.known, 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return (words[:at], "command", *_command_words(words[at + 1 :]))
        if word.startswith("-m") and not word.startswith("--"):
            module, behind = (word[2:], at + 1) if len(word) > 2 else (_value(words, at, "-m"), at + 2)  # noqa: PLR2004
            return words[:at], "module", module, words[behind:]
        if not word.startswith("-") or word == "-":
            return words[:at], "script", word, words[at + 1 :]
        if word.partition("=")[0] == _NODES:
            raise UsageError(f"{word} is not built yet. Use `traceml run -- torchrun ...`.", slug="not-built")
        action = known.get(word.partition("=")[0])
        takes_value = action is not None and action.nargs is None and "=" not in word
        at += 2 if takes_value else 1
    return words, None, "", []


def _command_words(words: list[str]) -> tuple[str, list[str]]:
    if not words:
        raise UsageError("run: which command? Say `traceml run -- bash job.sh`.", slug="usage")
    return words[0], words[1:]


def _value(words: list[str], at: int, option: str) -> str:
    if at + 1 >= len(words):
        raise UsageError(f"run: {option} needs a value, as in `traceml run -m package.module`.", slug="usage")
    return words[at + 1]


def _shell_words(text: Optional[str]) -> list[str]:
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise UsageError(f"run: --args {text!r} cannot be split: {error}.", slug="usage") from None


def _view(words: list[str]) -> Arguments:
    parser = _Parser(prog="traceml view", allow_abbrev=False, add_help=False)
    parser.description = "Shows the card of a run, finished or running."
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="a run folder, a name under logs, or a final_summary.json"
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this and exit")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON instead")
    parser.add_argument("--logs-dir", metavar="DIR", help="where run folders are (logs)")
    found = _parse_options(parser, words)
    if found.help:
        return Told(parser.format_help())
    if found.run is None:
        raise UsageError("view: which run? `traceml runs` lists them.", slug="usage")
    return ViewArguments(found.run, found.json, {"logs_dir": found.logs_dir})


def _attach(words: list[str]) -> Arguments:
    parser = _Parser(prog="traceml attach", allow_abbrev=False, add_help=False)
    parser.description = (
        "Shows a run full screen, from another terminal than the training's: live, or after its end. "
        "`?` shows the keys; closing it never ends the training."
    )
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="a run folder, a name under logs, or a final_summary.json (the newest running run, else the newest)",
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this and exit")
    parser.add_argument("--logs-dir", metavar="DIR", help="where run folders are (logs)")
    found = _parse_options(parser, words)
    return Told(parser.format_help()) if found.help else AttachArguments(found.run, {"logs_dir": found.logs_dir})


def _runs(words: list[str]) -> Arguments:
    parser = _Parser(prog="traceml runs", allow_abbrev=False, add_help=False)
    parser.description = "Lists the runs in the logs folder, the newest first."
    parser.add_argument("-h", "--help", action="store_true", help="show this and exit")
    parser.add_argument("--logs-dir", metavar="DIR", help="where run folders are (logs)")
    found = _parse_options(parser, words)
    return Told(parser.format_help()) if found.help else RunsArguments({"logs_dir": found.logs_dir})


def _compare(words: list[str]) -> Arguments:
    parser = _Parser(prog="traceml compare", allow_abbrev=False, add_help=False, usage=_COMPARE_USAGE)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Says whether steps take longer, where the time moved, and whether that is more than chance."
    parser.epilog = _COMPARE_END
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="*", help="a run folder, a name under logs, or a final_summary.json")
    add(
        "--against",
        metavar="RUN",
        nargs="+",
        action="extend",
        default=[],
        help="the other side's repeats; RUNs before it are this side's",
    )
    add("-h", "--help", action="store_true", help="show this and exit")
    add("--fail-on", metavar="WHAT", choices=("regression",), help="regression: exit 1 for one, 3 where it is open")
    add(
        "--margin",
        metavar="PERCENT",
        help="only more is a change, what lies within is the same, as in 3%% (1%% and 3%%)",
    )
    add("--json", action="store_true", help="print the comparison as JSON instead")
    add("--markdown", action="store_true", help="print it as Markdown, for a pull request")
    add("--logs-dir", metavar="DIR", help="where run folders are (logs)")
    found = _parse_options(parser, words)
    if found.help:
        return Told(parser.format_help())
    before, after = (found.runs, found.against) if found.against else (found.runs[:1], found.runs[1:])
    if not before or not after or (len(after) > 1 and not found.against):
        message = "compare: which runs? Say `traceml compare BEFORE AFTER`, or `A1 A2 A3 --against B1 B2 B3`."
        raise UsageError(message, slug="usage")
    if found.json and found.markdown:
        raise UsageError("compare: --json or --markdown, not both.", slug="usage")
    return CompareArguments(
        before=tuple(before),
        after=tuple(after),
        fails_on_regression=found.fail_on is not None,
        margin=_margin(found.margin),
        shape="json" if found.json else "markdown" if found.markdown else "text",
        options={"logs_dir": found.logs_dir},
    )


def _margin(text: Optional[str]) -> Optional[float]:
    """`3%`, `3 %` or `3`, in percent, as a share."""
    if text is None:
        return None
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    if 0 < percent < _MIN_MARGIN:
        message = f"compare: --margin {text!r} is a percentage, and less than any run can tell. Say --margin 3%."
        raise UsageError(message, slug="usage")
    if not 0 < percent <= _MAX_MARGIN:
        message = f"compare: --margin {text!r} is no percentage above 0 and up to {_MAX_MARGIN}. Say --margin 3%."
        raise UsageError(message, slug="usage")
    return percent / 100


def _parse_options(parser: _Parser, words: Sequence[str]) -> argparse.Namespace:
    found, left = parser.parse_known_args(list(words))
    if left:
        kind = "option" if left[0].startswith("-") else "argument"
        raise _unknown(kind, left[0].partition("=")[0], tuple(parser.known), parser.prog)
    return found


def _unknown(kind: str, word: str, known: Sequence[str], prog: str) -> UsageError:
    # Without the dashes, which make every option alike.
    names = {option.lstrip("-"): option for option in known}
    near = difflib.get_close_matches(word.lstrip("-"), names, n=1)
    hint = f"did you mean {names[near[0]]}?" if near else f"`{prog} --help` shows what there is."
    return UsageError(f"{_command(prog)}unknown {kind} '{word}'; {hint}", slug="usage")


def _command(prog: str) -> str:
    """`run: ` of `traceml run`; the line itself begins with `traceml: `."""
    name = prog.partition(" ")[2]
    return f"{name}: " if name else ""
