"""Documents that are assembled from a sentence-level data-bin."""
