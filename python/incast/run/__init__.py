"""One run: what is asked of the engine, how it is watched, and the summary at its end."""
