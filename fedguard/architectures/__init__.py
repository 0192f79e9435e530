"""Ways of training together, one file each."""

ARCHITECTURES = {
    "server": "fedguard.architectures.server:Server",
}
