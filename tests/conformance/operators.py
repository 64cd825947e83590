"""Which of PyTorch's sample sets say something about which core ATen operators."""

from __future__ import annotations

FORWARD = """
_native_batch_norm_legit _upsample_bilinear2d_aa abs acos acosh add addmm alias_copy all amax amin
any arange argmax argmin as_strided as_strided.partial_views as_strided_copy asin asinh atan atan2
atanh baddbmm bernoulli bitwise_and bitwise_not bitwise_or bitwise_xor bmm bucketize cat cdist
ceil clamp clone constant_pad_nd cos cosh cumprod cumsum diagonal diagonal_copy div.floor_rounding
div.no_rounding_mode div.trunc_rounding empty empty_like empty_strided eq erf erfc exp expand
expand_copy expm1 eye fft.irfft fft.rfft fill flip floor floor_divide fmax fmin fmod full
full_like gather ge grid_sampler_2d gt index_add index_copy index_fill index_put index_select
isfinite isinf isnan le lerp linspace log log10 log1p log2 log_softmax logaddexp logical_and
logical_not logical_or logical_xor logit logsumexp lt masked_fill masked_scatter masked_select
matmul max.binary max.reduction_no_dim max.reduction_with_dim maximum mean
meshgrid.list_of_tensors min.binary min.reduction_no_dim min.reduction_with_dim minimum mm mul mv
narrow narrow_copy native_batch_norm native_group_norm native_layer_norm ne neg
nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool2d nn.functional.avg_pool1d
nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.batch_norm nn.functional.celu
nn.functional.channel_shuffle nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d
nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.conv_transpose3d
nn.functional.dropout nn.functional.elu nn.functional.embedding nn.functional.embedding_bag
nn.functional.gelu nn.functional.glu nn.functional.grid_sample nn.functional.group_norm
nn.functional.hardshrink nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh
nn.functional.instance_norm nn.functional.interpolate.area nn.functional.interpolate.bicubic
nn.functional.interpolate.bilinear nn.functional.interpolate.linear
nn.functional.interpolate.nearest nn.functional.interpolate.nearest-exact
nn.functional.interpolate.trilinear nn.functional.layer_norm nn.functional.leaky_relu
nn.functional.linear nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d
nn.functional.mish nn.functional.normalize nn.functional.one_hot nn.functional.pad.circular
nn.functional.pad.constant nn.functional.pad.reflect nn.functional.pad.replicate
nn.functional.pad.replicate_negative nn.functional.pairwise_distance nn.functional.pdist
nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.prelu nn.functional.relu
nn.functional.relu6 nn.functional.rms_norm nn.functional.scaled_dot_product_attention
nn.functional.selu nn.functional.silu nn.functional.softplus nn.functional.softshrink
nn.functional.unfold nn.functional.upsample_bilinear nn.functional.upsample_nearest nonzero norm
ones ones_like permute permute_copy pow prod rad2deg rand_like randn randn_like reciprocal
remainder repeat repeat_interleave reshape roll round round.decimals_3 rsqrt rsub scalar_tensor
scatter scatter_add scatter_reduce.amax scatter_reduce.amin scatter_reduce.mean
scatter_reduce.prod scatter_reduce.sum searchsorted select select_scatter sigmoid sign sin sinh
slice slice_scatter softmax sort split split_with_sizes split_with_sizes_copy sqrt squeeze
squeeze.multiple squeeze_copy stack std sub sum t_copy take_along_dim tan tanh tile topk
torch.ops.aten._safe_softmax.default transpose transpose_copy tril triu trunc unbind unfold
unfold_copy unsqueeze unsqueeze_copy var var_mean vdot view view_copy where zeros zeros_like
""".split()

RANDOM = {
    "bernoulli",
    "empty",
    "empty_like",
    "empty_strided",
    "nn.functional.dropout",
    "rand_like",
    "randn",
    "randn_like",
}
"""Compared by type and shape; `tests/runtime` looks at the numbers."""

# The operators that only autograd calls, and the samples whose gradients need them.
BACKWARD = {
    "_adaptive_avg_pool2d_backward": ["nn.functional.adaptive_avg_pool2d"],
    "avg_pool2d_backward": ["nn.functional.avg_pool2d"],
    "convolution_backward": ["nn.functional.conv1d", "nn.functional.conv2d"],
    "embedding_dense_backward": ["nn.functional.embedding"],
    "max_pool2d_with_indices_backward": ["nn.functional.max_pool2d"],
    "native_group_norm_backward": ["nn.functional.group_norm"],
    "native_layer_norm_backward": ["nn.functional.layer_norm"],
}
