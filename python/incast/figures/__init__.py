"""Results beside each other: figures, reports and comparisons (docs/reports.md)."""
