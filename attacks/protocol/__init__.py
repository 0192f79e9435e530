"""Attacks on secure aggregation itself, one file each: hostile servers and clients against real parties."""
