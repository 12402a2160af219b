"""The generated German-English corpus: a synchronous grammar with documents and gold alignments."""
