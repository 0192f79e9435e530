"""Rows to charts: pure functions, one subject to a file, which the dashboard and the report draw with."""
