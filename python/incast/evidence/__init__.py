"""What a result says, and what that means: the facts, what limited a run, its dips."""
