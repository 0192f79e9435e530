"""The gate: has a change made anything worse? It judges a run against a baseline, and retests drops on fresh seeds."""
