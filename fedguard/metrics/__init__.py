"""Metrics of a training: dissimilarity of the clients, scores of a trajectory, honest minorities, red flags.

The table and its mathematics
    figures.py         the table of metrics: what each is, where a record stores it, where it is shown
    stats.py           intervals, and tests on pairs; ranking.py, the highest mean of several
    quantities.py      numbers as records store them, with their bounds
A training
    trajectory.py      utility, worst class, curve, and the events of its rounds; trend.py, whether it still rises at its end
    moments.py         simulated time: duration, staleness, cost for the devices
    aggregate.py       how far aggregates are from the honest mean; distance.py measures it in a round
    plane.py           the updates of a round in a plane
    nodes.py           a training without a server: the accuracy of each node
    returns.py         returns of a model that acts
    durability.py      how long a backdoor lasts; evasion.py, accuracy under an attack at test time
    flags.py           the red flags of one record
Its clients
    dissimilarity.py   how much their data differ; parties.py, parties with different tasks
    filtering.py       how well a rule finds the malicious ones; minority.py, whether it excludes honest minorities
    shapley.py         what each contributes
Their privacy
    masking.py         secure aggregation: anonymity, exactness, traffic
    reconstruction.py  reconstructed inputs; baselines.py, images that use no update
    membership.py      scores of members and nonmembers; labels.py, recovered labels; texts.py, recovered texts
"""
