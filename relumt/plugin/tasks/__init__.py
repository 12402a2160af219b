"""Translation of sentences and of documents, as tasks of fairseq."""
