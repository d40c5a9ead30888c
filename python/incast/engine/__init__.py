"""The engine as the front end knows it: its settings, its process and what that reports, the networks it simulates."""
