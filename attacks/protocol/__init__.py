"""Attacks on secure aggregation itself, one file each: malicious servers and clients against real parties."""
