"""A finished or half-finished run, to be read. Here records are known and nothing else.

run.py         a run: its records, rows and what is made of them
answer.py      the headline: which defense holds, and where it fails
matrix.py      attacks by defenses; matrices.py, those of a run that are shown by default
breakdown.py   curves over a swept key, and where half is lost
in_weight.py   which sites of unequal weight can break a rule together
verdict.py     the verdict of a run: a sentence with its evidence
trilemma.py    accuracy, privacy and robustness beside each other
disclosure.py  what attacks on the clients' privacy found
replay.py      the kept rounds of a trial in a plane
profile.py     where the time went
compare.py     two runs, cell by cell: comparison.py, differences.py; partners.py: which to compare
places.py      where a cell stands in the matrix, in words
export.py      rows as CSV, JSON or Parquet
tracking/      trials in MLflow, TensorBoard or Weights & Biases
"""
