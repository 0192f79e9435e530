"""Simulated time: when things happen, apart from what is computed.

agenda.py         events in the order of simulated time
world.py          how long devices compute, how long messages take, who is online
availability/     models and traces of the availability of devices
draws.py          random numbers of devices, independent of other devices
barriers.py       when a server may aggregate, and who may continue
course.py         the course of a training around a server: who trains when, and which updates meet in an aggregate
"""
