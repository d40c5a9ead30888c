"""Many runs: a plan of points, the readings taken of them, and the table (docs/scanning.md)."""
