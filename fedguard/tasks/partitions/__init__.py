"""Ways to deal the training examples out to clients, one file each."""
