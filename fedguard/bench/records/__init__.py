"""What is stored of a run.

schema/      manifest and record, field by field, and their JSON Schema
record.py    how a record is sealed, and what of it a seed must reproduce
store.py     run folders
reading.py   the one reader of files that anybody may have written
pictures.py  reconstructions beside a record
replay.py    rounds kept to be replayed, beside a record
reasons.py   why cells were refused or failed, in words
taxonomy.py  what kind of federation a cell is, in six words
"""
