"""Commands of Ethos-U85 alone, as in `commands_all`."""

COMMANDS = """
0x0002 NPU_OP_CONV weights_ifm2:1
0x0007 NPU_OP_RESIZE resize_mode:2=
0x0011 NPU_OP_DMA_WAIT k:2
0x0012 NPU_OP_KERNEL_WAIT n:1
0x0105 NPU_SET_IFM_PRECISION activation_type:1= activation_precision@2:2= activation_format@6:2=
    activation_storage@14:2=
0x0108 NPU_SET_IFM_BROADCAST broadcast_mode:4=
0x0114 NPU_SET_OFM_PRECISION activation_type:1= activation_precision@1:2= activation_format@6:2=
    scale_mode@8:1=ofm_scale_mode activation_reverse@9:2= activation_transpose@11:3=
    activation_storage@14:2=
0x0115 NPU_SET_OFM_BLK_WIDTH_M1 width_m1:7
0x0116 NPU_SET_OFM_BLK_HEIGHT_M1 height_m1:7
0x0117 NPU_SET_OFM_BLK_DEPTH_M1 depth_m1:10
0x0124 NPU_SET_ACC_FORMAT acc_format:2= acc_input@4:2= acc_output@6:1= microblock@8:3=
0x0125 NPU_SET_ACTIVATION activation_function:5= table@5:3 activation_clip_range@12:1=
0x012A NPU_SET_RESIZE_X_SCALE_N_M1 resize_x_scale_n_m1:11
0x012B NPU_SET_RESIZE_Y_SCALE_N_M1 resize_y_scale_n_m1:11
0x012C NPU_SET_RESIZE_X_OFFSET resize_x_offset:12
0x012D NPU_SET_RESIZE_Y_OFFSET resize_y_offset:12
0x012E NPU_SET_WEIGHT_FORMAT weight_format:1= weight_sparsity@4:1=
0x012F NPU_SET_BLOCKDEP blockdep:3
0x0130 NPU_SET_DMA0_SRC_REGION region:3 region_mode@8:1=dma_region_mode
    stride_mode@9:2=dma_stride_mode idx_mode@11:1=dma_idx_mode
0x0131 NPU_SET_DMA0_DST_REGION region:3 region_mode@8:1=dma_region_mode idx_mode@11:1=dma_idx_mode
0x0134 NPU_SET_DMA0_IDX_REGION region:3
0x0180 NPU_SET_IFM2_BROADCAST broadcast_mode:4=
0x0185 NPU_SET_IFM2_PRECISION activation_type:1= activation_precision@2:2= activation_format@6:2=
    activation_storage@14:2=
0x4024 NPU_SET_OFM_SCALE shift:6 dbl_rnd@6:5 round_mode@13:3=round_mode_ofm +scale:31
0x4025 NPU_SET_IFM_SCALE shift:6 dbl_rnd@6:5 round_mode@13:1=round_mode_ifm +scale:31
0x4026 NPU_SET_IFM2_SCALE shift:6 dbl_rnd@6:5 round_mode@13:1=round_mode_ifm +scale:31
0x4027 NPU_SET_OP_SCALAR +scalar:32
0x4033 NPU_SET_DMA0_SRC_STRIDE0 addr
0x4034 NPU_SET_DMA0_SRC_STRIDE1 addr
0x4035 NPU_SET_DMA0_DST_STRIDE0 addr
0x4036 NPU_SET_DMA0_DST_STRIDE1 addr
0x4037 NPU_SET_DMA0_IDX addr
0x4038 NPU_SET_DMA0_IDX_MAX +idx_max:31
0x4039 NPU_SET_DMA0_IDX_SKIP1 addr
0x4092 NPU_SET_WEIGHT2_BASE addr
0x4093 NPU_SET_WEIGHT2_LENGTH +length:32
0x4094 NPU_SET_WEIGHT3_BASE addr
0x4095 NPU_SET_WEIGHT3_LENGTH +length:32
0x4096 NPU_SET_RESIZE_X one_step_int:4 blk_step_int@4:11 +one_step_mod:11 +blk_step_mod@16:11
0x4097 NPU_SET_RESIZE_Y one_step_int:4 blk_step_int@4:11 +one_step_mod:11 +blk_step_mod@16:11
0x4100 NPU_OP_BRANCH branch_cond:1= +branch_target:32
"""

ENUMS: dict[str, dict[int, str]] = {
    "acc_format": {0: "I32", 1: "I48"},
    "acc_input": {0: "RESET", 1: "KEEP", 2: "IFM2"},
    "acc_output": {0: "ENABLE", 1: "DISABLE"},
    "activation_clip_range": {0: "B16", 1: "NONE"},
    "activation_function": {
        0: "LUT_NONE",
        1: "LUT_U8_U8",
        4: "LUT_S8_S8",
        5: "LUT_S8_S16",
        7: "LUT_S8_S32",
        8: "LUT_S16_S16",
        9: "LUT_S16_S32",
        10: "LUT_TANH",
        11: "LUT_SIGMOID",
    },
    "activation_reverse": {0: "NONE", 1: "H", 2: "W", 3: "C"},
    "activation_storage": {0: "TILE2X2", 1: "TILE3X1", 2: "CHAINED", 3: "NONE"},
    "activation_transpose": {0: "HWC", 1: "WHC", 2: "HCW", 3: "WCH", 6: "CHW", 7: "CWH"},
    "branch_cond": {0: "ALWAYS", 1: "RF_TRUE"},
    "broadcast_mode": {
        0: "NONE",
        1: "H",
        2: "W",
        3: "HW",
        4: "C",
        5: "CH",
        6: "CW",
        7: "CWH",
        8: "SCALAR",
    },
    "dma_idx_mode": {0: "DISABLED", 1: "ENABLED"},
    "elementwise_mode": {
        0: "MUL",
        1: "ADD",
        2: "SUB",
        3: "MIN",
        4: "MAX",
        5: "LRELU",
        6: "ABS",
        7: "CLZ",
        8: "SHR",
        9: "SHL",
        10: "LSR",
        11: "DIV",
        16: "CMP_EQ",
        17: "CMP_NE",
        18: "CMP_GE",
        19: "CMP_GT",
        33: "AND",
        34: "OR",
        35: "XOR",
        36: "NOT",
        42: "AND_NOT",
    },
    "microblock": {0: "U1X1", 1: "U1X2", 2: "U1X4", 3: "U2X2", 4: "U2X4", 5: "U4X4"},
    "pooling_mode": {
        0: "MAX",
        1: "AVERAGE",
        2: "REDUCE_SUM",
        3: "SUM",
        4: "NONE",
        5: "MIN",
        6: "ARGMAX_X",
        7: "ARGMAX_Y",
    },
    "resize_mode": {0: "BILINEAR", 1: "REPLICATE", 2: "NEAREST"},
    "round_mode_ifm": {0: "DOUBLE_SYMMETRIC", 1: "NATURAL"},
    "round_mode_ofm": {
        0: "DOUBLE_SYMMETRIC",
        1: "NATURAL",
        2: "DOUBLE_ASYMMETRIC",
        3: "SYMMETRIC",
        4: "TRUNCATE_TO_ZERO",
        5: "TRUNCATE_TO_LOWER",
    },
    "weight_format": {0: "SWD", 1: "FWD"},
    "weight_sparsity": {0: "NONE", 1: "SPARSE_2_4"},
}
