"""Training and validation with --compile: compiled parts of the model and of the loss, joined by CUDA graphs."""
