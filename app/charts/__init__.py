"""Rows to charts: pure functions, one subject per file, used by the dashboard and the report."""
