"""What the bridges to other programs reach: their own measuring programs, started and read."""
