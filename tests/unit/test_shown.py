"""Holds the card in a notebook to being text: escaped, self-contained, without a colour of its own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import traceml
from traceml.shown import Shown


def test_a_card_is_its_text_wherever_it_is_shown() -> None:
    card = Shown("INPUT BOUND\n  <b>x</b> & more\n")

    assert str(card) == repr(card) == "INPUT BOUND\n  <b>x</b> & more"
    assert "&lt;b&gt;x&lt;/b&gt; &amp; more" in card._repr_html_()


def test_a_card_brings_no_script_no_link_and_no_colour_of_its_own() -> None:
    page = Shown("x")._repr_html_()

    assert "color:inherit" in page
    assert not any(word in page for word in ("<script", "http", "src=", "color:#", "background:#"))
    assert len(page) < 400


def test_without_a_run_the_report_says_what_to_do() -> None:
    assert "traceml.init()" in str(traceml.report())


def test_the_package_of_that_name_does_not_hide_the_report() -> None:
    package: Any = import_module("traceml.report")

    assert callable(import_module("traceml.report.run").open_run)
    assert "traceml.init()" in str(package())
    assert "traceml.init()" in str(traceml.report())
