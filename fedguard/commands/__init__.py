"""Groups of commands that the command line (`fedguard.cli`) takes in."""
