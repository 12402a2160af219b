"""From a bitext to a fairseq data-bin: read, check, tokenize, clean, segment, binarize.

Each step is a function from text files to text files; `pipeline.prepare` runs them in order.
"""
