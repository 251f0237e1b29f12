"""Faces for people: text and terminal now, page later.

In: report.Run and report.Report. Out: what a person reads.
Knows: report, schema, settings. Holds: first a sentence, then its price, then the next step; no face opens the
database.
"""
