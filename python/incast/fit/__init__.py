"""Values of a network's file from measured `incast net` results (docs/fabric-fit.md)."""
