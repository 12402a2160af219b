"""`relumt doctor`: checks of the machine and of what is installed on it, and of the kernels on its GPUs."""
