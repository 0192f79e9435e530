"""Ways of training together, one file each."""

from fedguard.architectures.gossip import GOSSIP
from fedguard.architectures.systems import SYSTEMS

ARCHITECTURES = {
    "server": "fedguard.architectures.server:Server",
    **SYSTEMS,
    **GOSSIP,
}
