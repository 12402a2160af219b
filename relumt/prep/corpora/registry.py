"""All corpora by name. The name is also that of the script in data_prep/ and of the data-bin."""

from relumt.prep.corpora.corpus import Corpus
from relumt.prep.corpora.europarl7 import Europarl7
from relumt.prep.corpora.iwslt14 import Iwslt14
from relumt.prep.corpora.multi30k import Multi30k
from relumt.prep.corpora.wmt import load_wmt

CORPORA: dict[str, Corpus] = {
    "multi30k_de_en": Multi30k(),
    "iwslt14_de_en": Iwslt14(),
    "europarl7_en_de": Europarl7(),
    "europarl7_small": Europarl7(first=20_000, bpe_merges=3_000),
    **load_wmt(),
}
