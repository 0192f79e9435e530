"""Faults without intent: broken, stale or lazy clients."""
