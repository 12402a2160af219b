"""Execute many runs in parallel, on this machine or on a cluster; can be killed and started again at any time."""
