"""What a call costs before it is run, the blocks that a budget allows, and progress."""
