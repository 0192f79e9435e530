"""The gate: has a change made anything worse? A run is judged against a baseline, and what looks worse on fresh seeds."""
