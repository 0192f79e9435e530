"""Frameworks that people deploy, under attack and defended: one place for attack and rule, and a folder for each framework.

A framework's folder reads what the framework sends, a `place.Reply` each, hands all replies of a round to a `place.Place`, and
gives the result to the framework's own aggregation. Its module ``running`` says how an app is read, rehearsed and run.
"""
