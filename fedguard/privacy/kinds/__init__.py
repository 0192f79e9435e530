"""Record, client and distributed noise, one file each; `fedguard.contracts.cell` defines their interface."""

NOISES = {
    "none": "fedguard.privacy.kinds.none:NoNoise",
    "record": "fedguard.privacy.kinds.record:RecordNoise",
    "client": "fedguard.privacy.kinds.client:ClientNoise",
    "distributed": "fedguard.privacy.kinds.distributed:DistributedNoise",
}
