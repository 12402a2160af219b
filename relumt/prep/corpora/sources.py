"""Where WMT's training texts are published, with sizes and checksums where they are known."""

from relumt.prep.corpora.download import Source

EUROPARL_V7 = Source(
    "training-parallel-europarl-v7.tgz",
    ("https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",),
    "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    657_632_379,
)
COMMON_CRAWL = Source(
    "training-parallel-commoncrawl.tgz",
    ("https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",),
    "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    918_311_367,
)
NEWS_COMMENTARY_V9 = Source(
    "training-parallel-nc-v9.tgz",
    ("https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",),
    "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    80_418_416,
)
MULTI_UN = Source("training-parallel-un.tgz", ("https://www.statmt.org/wmt13/training-parallel-un.tgz",))
GIGA_FREN = Source("training-giga-fren.tar", ("https://www.statmt.org/wmt10/training-giga-fren.tar",))

EUROPARL_V8_16 = Source(
    "wmt16-training-parallel-ep-v8.tgz",
    ("https://data.statmt.org/wmt16/translation-task/training-parallel-ep-v8.tgz",),
    "sha256:8917bd3bef3bc894c8519ca1f8a4c7c330aad08a1263655a9d99ee13d532e3c7",
    225_018_324,
)
SETIMES2 = Source(
    "setimes2-en-ro.txt.zip",
    (
        "https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-ro.txt.zip",
        "https://opus.nlpl.eu/download.php?f=SETIMES/v2/moses/en-ro.txt.zip",
    ),
)

EUROPARL_V8_18 = Source(
    "wmt18-training-parallel-ep-v8.tgz",
    ("https://data.statmt.org/wmt18/translation-task/training-parallel-ep-v8.tgz",),
    "sha256:953eaf7f24dcfc87eff6845d13ec6ca8acbee0ccf7edf4063b8b94e943933a96",
    246_201_434,
)
RAPID_2016 = Source(
    "rapid2016.tgz",
    (
        "https://data.statmt.org/wmt18/translation-task/rapid2016.tgz",
        "https://data.statmt.org/wmt17/translation-task/rapid2016.tgz",
    ),
    "sha256:41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a",
    161_050_516,
)
PARACRAWL_V1 = Source(
    "paracrawl-release1.en-fi.zipporah0-dedup-clean.tgz",
    (
        "https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
        "paracrawl-release1.en-fi.zipporah0-dedup-clean.tgz",
    ),
    "sha256:ce3b46e928d37ae02ab8ce7e0ae0e1f89d1aed5e60271056913e35ff742e65ff",
    36_138_086,
)
WIKI_TITLES = Source(
    "wiki-titles.tgz",
    ("https://www.statmt.org/wmt15/wiki-titles.tgz",),
    "sha256:cd7cf81dbc99ef00b57e3106a4731b54cebcb7cff19088913cdab1c8114d3660",
    9_487_481,
)

NEWS_COMMENTARY_V13 = Source(
    "training-parallel-nc-v13.tgz",
    ("https://data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz",),
    "sha256:17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
    113_157_482,
)
UN_V1 = Source(
    "UNv1.0.en-zh.tar.gz",
    ("https://storage.googleapis.com/tfds-data/downloads/uncorpus/UNv1.0.en-zh.tar.gz",),
    "sha256:6f9c6401d5f0a49b20661324570d99fb86822d82f974748a361e19b9b886dd49",
    1_386_685_703,
)
CWMT = tuple(
    Source(f"{name}.zip", ask="register for CWMT's corpora of WMT18 at http://nlp.nju.edu.cn/cwmt-wmt/")
    for name in ("casia2015", "casict2011", "casict2015", "datum2015", "datum2017", "neu2017")
)
