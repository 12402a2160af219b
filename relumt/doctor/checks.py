"""All checks of the machine and of the installation, in the order of the report."""

from relumt.doctor.check import CheckFunction
from relumt.doctor.corpus_tools import (
    check_bash,
    check_sacremoses,
    check_sentencepiece,
    check_stop_words,
    check_subword_nmt,
)
from relumt.doctor.hardware import check_c_compiler, check_cpu, check_gpu_arithmetic, check_gpus
from relumt.doctor.kernel_setting import check_kernel_setting
from relumt.doctor.software import (
    check_fairseq,
    check_python,
    check_relumt,
    check_requirements,
    check_sacrebleu,
    check_torch,
    check_triton,
)
from relumt.doctor.storage import check_relumt_cache, check_triton_cache, check_working_directory

CHECKS: tuple[CheckFunction, ...] = (
    check_relumt,
    check_python,
    check_requirements,
    check_torch,
    check_triton,
    check_fairseq,
    check_sacrebleu,
    check_bash,
    check_sacremoses,
    check_subword_nmt,
    check_sentencepiece,
    check_stop_words,
    check_working_directory,
    check_relumt_cache,
    check_triton_cache,
    check_c_compiler,
    check_cpu,
    check_gpus,
    check_gpu_arithmetic,
    check_kernel_setting,
)
"""To add a check, write a function that returns a `Check`, and add it here."""
