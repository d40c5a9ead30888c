"""The laboratory: parameter scans, what limited a run, reports and comparisons (docs/scanning.md, docs/reports.md)."""
