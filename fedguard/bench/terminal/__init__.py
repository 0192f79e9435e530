"""Charts (plot.py) and tables (parted.py) that fit a terminal, and print as text as well (printed.py)."""
