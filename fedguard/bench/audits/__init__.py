"""Cells whose noise is put to the test: cells.py, what is audited; training.py, their own training; suites.py, a run's."""
