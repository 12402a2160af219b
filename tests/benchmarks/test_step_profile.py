"""What is read from a profile of training steps."""

import sys

import pytest
import torch

from tests.benchmarks.cases import BENCHMARKS


@pytest.fixture
def step_profile(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import step_profile

    yield step_profile
    sys.modules.pop("step_profile")


@pytest.mark.parametrize(
    ("spans", "busy"),
    [
        ([], 0),
        ([(5, 9)], 4),
        ([(0, 4), (2, 6), (10, 11)], 7),  # two overlap
        ([(0, 9), (2, 3), (4, 5)], 9),  # two lie within the first
        ([(4, 5), (0, 2)], 3),  # not in order
    ],
)
def test_the_busy_time_is_that_of_the_union(step_profile, spans, busy):
    assert step_profile.busy_time(spans) == busy


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "products"),
        ("nvjet_hsh_192x128_64x5_2x1_v_bz_coopB_TNT", "products"),
        ("void pytorch_flash::flash_fwd_kernel<...>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7", "attention"),
        ("backward_dkdv", "attention"),
        ("void (anonymous namespace)::softmax_warp_forward<...>", "softmax"),
        ("void at::native::multi_tensor_apply_kernel<...>", "optimizer"),
        ("Memcpy DtoH (Device -> Pageable)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<...>", "other"),
    ],
)
def test_kernels_are_sorted_by_what_they_do(step_profile, kernel, kind):
    assert step_profile.kind_of_kernel(kernel) == kind


def test_counts_and_times_are_per_step(step_profile):
    x = torch.ones(8, 8)

    def take_step(number):
        (x @ x).sum().item()
        return number

    found = step_profile.profile_steps(take_step, range(3))
    assert found["reads"] == pytest.approx(1)
    assert dict(found["operators"])["aten::mm"] > 0
    assert found["busy"] == 0 or torch.cuda.is_available()
    table = step_profile.profile_tables({"a": found}, {"a": 2.0})
    assert "| a | 2.0 |" in table and "`aten::mm`" in table
