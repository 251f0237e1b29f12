"""The one door to a run, and the contract every face shows: Run and Report.

In: a run folder, or a final_summary.json. Out: Run (report, series, output), Report, the Sink protocol.
Knows: diagnosis, analysis, store, wire, schema; of collect, who lives. Holds: every face says the same sentence, letter
for letter; what is read from outside is checked against the schema before anything believes it.
"""
