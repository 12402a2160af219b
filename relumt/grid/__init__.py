"""Make many runs in parallel, on this machine or on a cluster; can be killed at any time and started again."""
