"""The papers' corpora: from the files that their makers publish to a data-bin. Each kind of corpus has a module."""
