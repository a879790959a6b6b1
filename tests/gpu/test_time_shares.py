"""Kinds of kernels, told from their names. Run alone: pytest tests/gpu/test_time_shares.py"""

from collections.abc import Mapping

import pytest

from benchmarks.gpu.time_shares import OTHER, by_kind, kind_of

KERNELS: Mapping[str, str] = {
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>": "attention",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>": "attention",
    "fmha_cutlassB_bf16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<...>)": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x64x64": "attention",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "products",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT": "products",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align2>": "products",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>": "products",
    "void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>": "cross entropy",
    "_rows_kernel": "cross entropy",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>": "optimizer",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<LpNormFunctor<float>>": "optimizer",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>": "norm",
    "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>": "norm",
    "triton_per_fused_add_native_dropout_native_layer_norm_3": "norm",
    "triton_red_fused_sum_5": "norm",
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int>": "dropout",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int>": "embedding",
    "void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2>": "embedding",
    "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>": "embedding",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>": "elementwise",
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16>>": "elementwise",
    "triton_poi_fused_gelu_2": "elementwise",
    "Memcpy HtoD (Pageable -> Device)": "waiting and copies from the host",
    "aten::mm": "products",
    "aten::addmm": "products",
    "aten::bmm": "attention",
    "aten::_fused_adamw_": "optimizer",
    "aten::native_layer_norm": "norm",
    "aten::_local_scalar_dense": "waiting and copies from the host",
    "aten::add_": "elementwise",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL": OTHER,
}


@pytest.mark.parametrize(("kernel", "kind"), KERNELS.items())
def test_kernels_belong_to_their_kind(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


def test_times_are_added_up_by_kind() -> None:
    assert by_kind([("aten::mm", 2.0), ("aten::addmm", 3.0), ("what is this", 1.0)]) == {"products": 5.0, OTHER: 1.0}
