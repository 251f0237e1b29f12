"""Holds the command line to its promises: what is ours, what is the script's, and what a mistake says."""

from __future__ import annotations

import pytest

from traceml.cli.arguments import (
    AttachArguments,
    CompareArguments,
    RunArguments,
    RunsArguments,
    Told,
    ViewArguments,
    parse,
)
from traceml.errors import UsageError


def run_of(*words: str) -> RunArguments:
    found = parse(["run", *words])
    assert isinstance(found, RunArguments)
    return found


def given(found: RunArguments) -> dict[str, object]:
    return {name: value for name, value in found.options.items() if value is not None}


def refused(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert "\n" not in str(caught.value)
    return caught.value


def test_everything_behind_the_script_is_the_scripts_even_help_and_our_own_options() -> None:
    found = run_of("--mode=summary", "train.py", "--epochs", "3", "--help", "--mode=x", "--", "-m")

    assert (found.kind, found.target) == ("script", "train.py")
    assert found.script_args == ("--epochs", "3", "--help", "--mode=x", "--", "-m")
    assert given(found) == {"mode": "summary"}


def test_options_take_their_value_behind_a_blank_or_a_sign() -> None:
    one = run_of(
        "--logs-dir", "my logs", "--run-name=a", "--interval", "5", "--trace-max-steps=10", "--save-output", "t.py"
    )

    assert given(one) == {
        "logs_dir": "my logs", "run_name": "a", "interval": "5", "trace_max_steps": "10", "save_output": True,
    }  # fmt: skip


@pytest.mark.parametrize("words", [("-m", "pkg.train"), ("-mpkg.train",), ("--interval", "2", "-m", "pkg.train")])
def test_a_module_is_started_as_python_does(words: tuple[str, ...]) -> None:
    found = run_of(*words, "-m", "--epochs")

    assert (found.kind, found.target, found.script_args) == ("module", "pkg.train", ("-m", "--epochs"))


def test_args_in_one_text_come_before_those_behind_the_script() -> None:
    found = run_of("--args", "--name 'two words' -x", "train.py", "last")

    assert found.script_args == ("--name", "two words", "-x", "last")


def test_args_behind_a_sign_may_begin_with_a_dash() -> None:
    assert run_of("--args=--lr 0.1", "train.py").script_args == ("--lr", "0.1")


def test_a_script_named_by_a_dash_is_stdin() -> None:
    assert run_of("-", "x").target == "-"


def test_help_of_run_before_a_script_is_ours() -> None:
    found = parse(["run", "--help"])

    assert isinstance(found, Told)
    assert "--trace-max-steps" in found.text


def test_nothing_and_help_show_the_commands() -> None:
    for words in ([], ["--help"], ["-h"]):
        found = parse(words)
        assert isinstance(found, Told)
        assert all(name in found.text for name in ("run", "view", "runs", "--version"))


def test_help_texts_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], ["run", "-h"], ["attach", "-h"], ["view", "-h"], ["runs", "-h"]):
        found = parse(words)
        assert isinstance(found, Told)
        assert max(len(line) for line in found.text.splitlines()) <= 80


def test_view_and_runs_know_their_options() -> None:
    assert parse(["view", "logs/a", "--json"]) == ViewArguments("logs/a", as_json=True, options={"logs_dir": None})
    assert parse(["runs", "--logs-dir", "x"]) == RunsArguments({"logs_dir": "x"})


def test_attach_needs_no_run() -> None:
    assert parse(["attach"]) == AttachArguments(None, {"logs_dir": None})
    assert parse(["attach", "logs/a", "--logs-dir=x"]) == AttachArguments("logs/a", {"logs_dir": "x"})


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("veiw", "x"), ("unknown command 'veiw'", "view")),
        (("run", "--moed=cli", "t.py"), ("unknown option '--moed'", "--mode")),
        (("run", "--log-dir", "x", "t.py"), ("unknown option '--log-dir'", "--logs-dir")),
        (("view", "x", "--jsn"), ("unknown option '--jsn'", "--json")),
        (("--versoin",), ("unknown option '--versoin'", "--version")),
        (("frobnicate",), ("unknown command 'frobnicate'", "--help")),
        (("view", "x", "y"), ("unknown argument 'y'",)),
        (("runs", "--logs-dir"), ("--logs-dir", "expected one argument")),
        (("run", "--interval"), ("--interval", "expected one argument")),
        (("run", "-m"), ("-m needs a value",)),
        (("run",), ("which script",)),
        (("run", "--"), ("which command",)),
        (("run", "--mode=cli"), ("which script",)),
        (("view",), ("which run",)),
        (("run", "--args", "'open", "t.py"), ("--args", "'open")),
    ],
)
def test_a_mistake_is_one_line_with_the_value_and_the_nearest_known(
    words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    error = refused(*words)

    assert error.slug == "usage"
    assert all(part in str(error) for part in parts)


def test_behind_two_dashes_stands_any_command_with_arguments_of_its_own() -> None:
    found = run_of("--mode=summary", "--", "torchrun", "--nproc-per-node=2", "--", "train.py")

    assert (found.kind, found.target) == ("command", "torchrun")
    assert found.script_args == ("--nproc-per-node=2", "--", "train.py")


def test_a_check_is_asked_for_before_the_script() -> None:
    assert run_of("--check", "train.py").check
    assert not run_of("train.py", "--check").check


@pytest.mark.parametrize("words", [("--nproc-per-node=4",), ("--nproc_per_node", "4"), ("--nproc-per-node", "4")])
def test_several_ranks_are_asked_for_as_torchrun_is(words: tuple[str, ...]) -> None:
    found = run_of(*words, "train.py", "--nproc-per-node=9")

    assert found.options["nproc_per_node"] == "4"
    assert found.script_args == ("--nproc-per-node=9",)


def test_a_command_starts_its_ranks_itself() -> None:
    assert "traceml run -- torchrun" in str(refused("run", "--nproc-per-node=2", "--", "bash", "job.sh"))


@pytest.mark.parametrize("words", [("run", "--nnodes=2", "train.py"), ("run", "--mode=dashboard", "train.py")])
def test_what_is_designed_but_not_there_says_so(words: tuple[str, ...]) -> None:
    error = refused(*words)

    assert error.slug == "not-built"
    assert "not built yet" in str(error)


def test_an_option_is_not_abbreviated_by_guessing() -> None:
    assert "unknown option '--save'" in str(refused("run", "--save", "train.py"))


def test_what_stands_behind_against_adds_up_however_often_it_is_said() -> None:
    found = parse(["compare", "a", "b", "--against", "c", "--against", "d", "e"])

    assert isinstance(found, CompareArguments)
    assert (found.before, found.after) == (("a", "b"), ("c", "d", "e"))
