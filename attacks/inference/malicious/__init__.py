"""A malicious server: it sends another model, whose gradient shows inputs."""
