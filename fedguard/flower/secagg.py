"""FedGuard's secure aggregation over Flower's messages: see `fedguard.bridges.flower.secagg`."""

from fedguard.bridges.flower.secagg import BYTES, KIND, RECORD, REFUSED, secagg_client, secagg_sum

__all__ = ["BYTES", "KIND", "RECORD", "REFUSED", "secagg_client", "secagg_sum"]
