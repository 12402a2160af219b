"""From any bitext or published corpus to a fairseq data-bin; the generated corpus; contrastive test sets."""
