"""The papers' corpora: from the published files to a data-bin. Each kind of corpus has its own module."""
