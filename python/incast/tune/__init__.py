"""The best settings for a goal: what is varied, what is measured next, what came of it (docs/tuning.md)."""
