"""Generates pages of the documentation from docstrings, settings, commands and other files.

hooks.py        what MkDocs calls while it builds the site
algorithms.py   attacks, defenses and all else with a name, as `fedguard explain` tells it
front_door.py   every name in `fedguard.__all__`
suite.py        the keys of a suite file
records.py      what is stored, field by field, with its JSON Schemas, and the table of figures
commands.py     the commands with their options
renamed.py      names of earlier versions: python -m docs_tools.renamed writes docs/renamed.md
pictures.py     the pictures of the pages on architectures and gossip: python -m docs_tools.pictures
exponents.py    one of them: how what a target takes grows as nodes mix slower
episode.py      the picture that moves
speed.py        goals beside what the benchmarks measured; goals.py: the goals, charts.py: the pictures
fates.py        tables of running statistics, from records: python -m docs_tools.fates RUN ...
four_sets.py    tables of accuracy under attack, from records: python -m docs_tools.four_sets RUN ...
cross_silo.py   the tables of the page on six unequal sites, from records: python -m docs_tools.cross_silo RUN
included.py     files of other folders as pages, and links that are right in the repository and on the site
formulae.py     formulae as MathML
markup.py       plain text as HTML and Markdown
"""
