"""Ways of training together, one file each: around a server in simulated time, on the common `event_system`, `event_server`
and `event_run`; and without one, on the common `peers`."""

SYSTEMS = {
    "parameter_server": "fedguard.architectures.systems.parameter_server:ParameterServer",
    "google": "fedguard.architectures.systems.google:Google",
    "decaf": "fedguard.architectures.systems.decaf:DeCaf",
    "mapreduce": "fedguard.architectures.systems.mapreduce:MapReduce",
    "fate": "fedguard.architectures.systems.fate:FATE",
    "fedasync": "fedguard.architectures.systems.fedasync:FedAsync",
    "fedbuff": "fedguard.architectures.systems.fedbuff:FedBuff",
    "basgd": "fedguard.architectures.systems.basgd:BASGD",
    "a3c": "fedguard.architectures.systems.a3c:A3C",
    "a2c": "fedguard.architectures.systems.a2c:A2C",
    "impala": "fedguard.architectures.systems.impala:Impala",
    "seed_rl": "fedguard.architectures.systems.seed_rl:SeedRL",
    "apex": "fedguard.architectures.systems.apex:ApeX",
    "r2d2": "fedguard.architectures.systems.r2d2:R2D2",
    "dreamer": "fedguard.architectures.systems.dreamer:Dreamer",
    "all_reduce": "fedguard.architectures.systems.all_reduce:AllReduce",
    "btard": "fedguard.architectures.systems.btard:BTARD",
}
