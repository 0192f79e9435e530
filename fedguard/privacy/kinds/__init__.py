"""Record, client and distributed noise, one file each; `fedguard.contracts.noise` defines their interface."""

NOISES = {
    "none": "fedguard.contracts.noise:NoNoise",
    "record": "fedguard.privacy.kinds.record:RecordNoise",
    "client": "fedguard.privacy.kinds.client:ClientNoise",
    "distributed": "fedguard.privacy.kinds.distributed:DistributedNoise",
}
