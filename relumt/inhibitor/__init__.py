"""The experiments of [IN] Tables 1 to 3, in which no system is a translation model.

    table1.py   one-layer Transformers on four tasks     table1_{settings,data,models,training}.py, generated_data.py
    table2.py   attention in 16-bit integers on a CPU    integer_attention.py, kernels.c
    table3.py   attention on encrypted integers          encrypted_attention.py, circuits.py

`python -m relumt.inhibitor.table1 --preset PRESET --out FOLDER` measures what is missing in FOLDER, and `render` makes
the table of it. `scripts/reproduce.sh inhibitor_table1` does both.
"""
