"""What honest clients do to their own examples, and to their update before they send it."""
