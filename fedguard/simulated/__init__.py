"""The simulated world: when things happen, apart from what is computed.

agenda.py         events in the order of simulated time
world.py          how long devices compute, how long messages take, who is there
availability/     laws and traces of when devices are there
draws.py          random numbers of devices, that depend on nobody else
barriers.py       when a server may aggregate, and who may go on
course.py         the course of a training around a server: who trains when, and which updates meet in an aggregate
"""
