"""Attention on encrypted integers for [IN] Table 3: the Inhibitor against dot products, under TFHE through Concrete.

Concrete needs NumPy 1 and therefore a Python environment of its own. `concrete_worker.py` runs there as a child process
and imports nothing else of relumt; `oracle.py` says what the circuits have to compute.
"""
