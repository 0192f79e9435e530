"""What a rule of somebody's own is worth: the verdict of `fedguard accept`.

submission.py   what is handed in: a file with a rule, or a pipeline by name
standard.py     the standard by which it is judged, read from standards/YEAR.yaml
findings.py     what is found, and the verdict
rounds.py       rounds of an aggregation on which a rule is tried
watch.py        what a rule's code reaches for while it runs
case.py         what each check gets: the rule, and the sizes at which it is tried
contracts/      one file for each group of checks of the contract
child.py        runs the checks in a process of its own
trainings.py    whole trainings: worst case, cost without attack, backdoors
flags.py        signs that a better attacker could do much better, or that figures say little
accept.py       starts that process, within limits, then the trainings, and collects the verdict
verify.py       a stranger's check of a verdict: its records, its figures, and trials repeated
words.py        the verdict in words
"""
