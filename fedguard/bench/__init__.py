"""Running suites and reading what came out. Each room knows those above it, and none below.

records/     what is stored of a run: its schema, folders, seals, and the one reader
running/     from a plan to records: a suite before it runs, the runner, workers, one trial
results/     a run to be read: figures, matrices, curves, comparisons; they know records and nothing else
flags/       red flags of runs and of other people's results, for `lint`
audits/      cells whose noise is put to the test, for `audit`
tuning/      defenses tuned with equal budgets, for `tune`
acceptance/  the verdict on a rule of somebody's own, for `accept`
controls/    which controls of standards and laws a run is evidence for, for `controls`
gate/        a run beside a baseline, for `gate`
conformance/ real processes compared with the simulation, for `conform`
explain/     what `list` and `explain` say
terminal/    charts and tables that fit a terminal
pages/       what people see of a run: pages of blocks, rendered as HTML, in the terminal and as Markdown
docstrings.py  what docstrings say
sarif.py       findings for code hosts, of all commands that have any
starters.py    what `init`, `new` and `examples` write; doctor.py, what `doctor` says
"""
