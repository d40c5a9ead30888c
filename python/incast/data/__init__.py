"""Files of built events, and inputs made of ROOT trees (docs/formats.md)."""
