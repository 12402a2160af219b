"""Every corpus by its name, which is that of its script in data_prep/ and of its data-bin."""

from relumt.prep.corpora import sources
from relumt.prep.corpora.corpus import Corpus
from relumt.prep.corpora.europarl7 import Europarl7
from relumt.prep.corpora.iwslt14 import Iwslt14
from relumt.prep.corpora.multi30k import Multi30k
from relumt.prep.corpora.wmt import Part, Wmt

WMT14_EN_DE = Wmt(
    ("en", "de"),
    (
        Part(sources.EUROPARL_V7, ("training/europarl-v7.de-en.en", "training/europarl-v7.de-en.de")),
        Part(sources.COMMON_CRAWL, ("commoncrawl.de-en.en", "commoncrawl.de-en.de")),
        Part(
            sources.NEWS_COMMENTARY_V9, ("training/news-commentary-v9.de-en.en", "training/news-commentary-v9.de-en.de")
        ),
    ),
    valid="wmt13",
    test="wmt14/full",
)
WMT14_EN_FR = Wmt(
    ("en", "fr"),
    (
        Part(sources.EUROPARL_V7, ("training/europarl-v7.fr-en.en", "training/europarl-v7.fr-en.fr")),
        Part(sources.COMMON_CRAWL, ("commoncrawl.fr-en.en", "commoncrawl.fr-en.fr")),
        Part(sources.MULTI_UN, ("un/undoc.2000.fr-en.en", "un/undoc.2000.fr-en.fr")),
        Part(
            sources.NEWS_COMMENTARY_V9, ("training/news-commentary-v9.fr-en.en", "training/news-commentary-v9.fr-en.fr")
        ),
        Part(sources.GIGA_FREN, ("giga-fren.release2.fixed.en.gz", "giga-fren.release2.fixed.fr.gz")),
    ),
    valid="wmt13",
    test="wmt14/full",
)
WMT16_RO_EN = Wmt(
    ("ro", "en"),
    (
        Part(
            sources.EUROPARL_V8_16,
            ("training-parallel-ep-v8/europarl-v8.ro-en.ro", "training-parallel-ep-v8/europarl-v8.ro-en.en"),
        ),
        Part(sources.SETIMES2, ("SETIMES.en-ro.ro", "SETIMES.en-ro.en")),
    ),
    valid="wmt16/dev",
    test="wmt16",
)
WMT18_EN_FI = Wmt(
    ("en", "fi"),
    (
        Part(sources.EUROPARL_V8_18, ("training/europarl-v8.fi-en.en", "training/europarl-v8.fi-en.fi")),
        Part(sources.RAPID_2016, ("rapid2016.en-fi.en", "rapid2016.en-fi.fi")),
        Part(
            sources.PARACRAWL_V1,
            (
                "paracrawl-release1.en-fi.zipporah0-dedup-clean.en",
                "paracrawl-release1.en-fi.zipporah0-dedup-clean.fi",
            ),
        ),
        Part(
            sources.WIKI_TITLES,
            ("wiki/fi-en/titles.fi-en", "wiki/fi-en/titles.fi-en"),
            separator=" ||| ",
            columns=(1, 0),
        ),
    ),
    valid="wmt17",
    test="wmt18",
)
WMT18_ZH_EN = Wmt(
    ("zh", "en"),
    (
        Part(
            sources.NEWS_COMMENTARY_V13,
            (
                "training-parallel-nc-v13/news-commentary-v13.zh-en.zh",
                "training-parallel-nc-v13/news-commentary-v13.zh-en.en",
            ),
        ),
        Part(sources.UN_V1, ("en-zh/UNv1.0.en-zh.zh", "en-zh/UNv1.0.en-zh.en")),
        *(
            Part(archive, (f"{stem}/*_c[hn].txt", f"{stem}/*_en.txt"))
            for archive in sources.CWMT
            for stem in [archive.name.removesuffix(".zip")]
        ),
    ),
    valid="wmt17",
    test="wmt18",
    max_ratio=4.0,
)

CORPORA: dict[str, Corpus] = {
    "multi30k_de_en": Multi30k(),
    "iwslt14_de_en": Iwslt14(),
    "wmt14_en_de": WMT14_EN_DE,
    "wmt14_en_fr": WMT14_EN_FR,
    "wmt16_ro_en": WMT16_RO_EN,
    "wmt18_en_fi": WMT18_EN_FI,
    "wmt18_zh_en": WMT18_ZH_EN,
    "europarl7_en_de": Europarl7(),
    "europarl7_small": Europarl7(first=20_000, merges=3_000),
}
