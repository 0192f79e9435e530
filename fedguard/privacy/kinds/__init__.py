"""Kinds of noise, one file each; what they have in common is told in `fedguard.contracts.noise`."""

NOISES = {
    "none": "fedguard.contracts.noise:NoNoise",
    "record": "fedguard.privacy.kinds.record:RecordNoise",
    "client": "fedguard.privacy.kinds.client:ClientNoise",
    "distributed": "fedguard.privacy.kinds.distributed:DistributedNoise",
}
