"""A rule of one's own, to be judged by `fedguard accept`: halfway between the ends of what is left after trimming."""

from fedguard.contracts import ROWS, CoordinateRule


class Midpoint(CoordinateRule):
    """Halfway between the ends of what is left after f values are trimmed at each end."""

    name, needs, min_rows = "midpoint", ROWS, (2, 1)

    def reduce(self, block, context):
        ordered = block.sort(0).values
        return (ordered[context.f] + ordered[len(ordered) - 1 - context.f]) / 2
