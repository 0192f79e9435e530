"""Controls of standards and laws: which metrics of a run are evidence for which control, and what they do not show.

table.py      the controls, read from controls.yaml
evidence.py   what a run says of each control
report.py     the report in plain words, as blocks
"""
