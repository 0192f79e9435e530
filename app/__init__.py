"""The dashboard: `fedguard dashboard`. It reads records and nothing else.

main.py     the page
data.py     cached reads
charts.py   rows to charts, without side effects
"""
