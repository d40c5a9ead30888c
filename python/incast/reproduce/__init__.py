"""`incast reproduce`: published results beside ours, by a program (docs/reproduction.md)."""
