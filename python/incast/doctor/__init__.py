"""What of a host is not as RDMA needs it, and what mends it; only looks (docs/doctor.md)."""
