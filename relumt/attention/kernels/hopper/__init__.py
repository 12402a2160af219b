"""ReLU attention in Gluon for Hopper GPUs (compute capability 9.0), for long bf16 and fp16 calls with heads of 64 and
128."""
