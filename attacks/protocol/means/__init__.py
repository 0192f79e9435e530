"""What protocol attacks have in common.

relay.py     a session in the hands of a server that looks and listens
malicious.py   a session in the hands of a server that asks whom it likes what it likes, and opens what it can
network.py   a session of an honest server among malicious clients
inputs.py    inputs as encodings make them
traces.py    what a run leaves behind, searched for secrets
"""
