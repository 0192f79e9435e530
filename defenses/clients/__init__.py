"""What honest clients do to their own update before they send it."""
