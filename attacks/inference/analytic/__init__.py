"""Inputs computed from the gradient in closed form or by linear algebra, without any descent."""
