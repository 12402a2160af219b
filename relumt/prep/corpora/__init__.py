"""The papers' corpora, one module each: from the files that their makers publish to a data-bin."""
