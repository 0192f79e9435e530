"""Labels read off the gradient of the last layer."""
