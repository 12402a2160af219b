"""The experiments of [IN] Table 1: one-layer Transformers on the adding problem, MNIST, IMDB and IAM words.

`python -m relumt.one_layer --preset PRESET --out FOLDER` trains what is missing in FOLDER, one JSON file per training.
`relumt.tables.inhibitor_table1` makes a table of it. Nothing here needs fairseq.
"""
