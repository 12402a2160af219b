"""Many runs: started side by side, on GPUs, cores or a cluster; killed at any time and started again."""
