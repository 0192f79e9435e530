"""Makes the pages of the documentation that are written nowhere: from docstrings, settings, commands and other files.

hooks.py        what MkDocs calls while it builds the site
algorithms.py   attacks, defenses and all else with a name, as `fedguard explain` tells it
suite.py        the keys of a suite file
records.py      what is stored, field by field, with its JSON Schemas, and the table of figures
commands.py     the commands with their options
pictures.py     the pictures of the pages on architectures and gossip: python -m docs_tools.pictures
speed.py        goals beside what the benchmarks measured; goals.py: the goals, charts.py: the pictures
included.py     files outside of docs/ as pages, and links that are right in the repository and on the site
formulae.py     formulae as MathML
markup.py       plain text as HTML and Markdown
"""
