"""From a bitext to a fairseq data-bin: read, check, tokenise, clean, segment, binarise.

Every step is a function from text files to text files; `pipeline.prepare` puts them in order.
"""
