"""All that subclasses, registers with or patches fairseq."""
