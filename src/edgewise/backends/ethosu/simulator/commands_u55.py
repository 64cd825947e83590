"""Commands of Ethos-U55 and U65 alone, as in `commands_all`."""

COMMANDS = """
0x0002 NPU_OP_CONV
0x0011 NPU_OP_DMA_WAIT k:1
0x0012 NPU_OP_KERNEL_WAIT n:2
0x0105 NPU_SET_IFM_PRECISION activation_type:1= activation_precision@2:2= activation_format@6:2=
    scale_mode@8:2=ifm_scale_mode round_mode@14:2=
0x010D NPU_SET_IFM_IB_END ib_end:6
0x0114 NPU_SET_OFM_PRECISION activation_type:1= activation_precision@1:2= activation_format@6:2=
    scale_mode@8:1=ofm_scale_mode round_mode@14:2=
0x0115 NPU_SET_OFM_BLK_WIDTH_M1 width_m1:6
0x0116 NPU_SET_OFM_BLK_HEIGHT_M1 height_m1:5
0x0117 NPU_SET_OFM_BLK_DEPTH_M1 depth_m1:7
0x0123 NPU_SET_PARALLEL_MODE parallel_mode:1=
0x0124 NPU_SET_ACC_FORMAT acc_format:2=
0x0125 NPU_SET_ACTIVATION activation_function:5= activation_clip_range@12:3=
0x012D NPU_SET_AB_START ab_start:6
0x012F NPU_SET_BLOCKDEP blockdep:2
0x0130 NPU_SET_DMA0_SRC_REGION region:3 region_mode@8:1=dma_region_mode
    stride_mode@9:2=dma_stride_mode
0x0131 NPU_SET_DMA0_DST_REGION region:3 region_mode@8:1=dma_region_mode
    stride_mode@9:2=dma_stride_mode
0x0180 NPU_SET_IFM2_BROADCAST broadcast_h:1=broadcast_mode broadcast_w@1:1=broadcast_mode
    broadcast_c@2:1=broadcast_mode operand_order@6:1=ifm2_operand_order
    broadcast_constant@7:1=broadcast_mode
0x0181 NPU_SET_IFM2_SCALAR scalar:16
0x0185 NPU_SET_IFM2_PRECISION activation_type:1= activation_precision@2:2= activation_format@6:2=
0x018D NPU_SET_IFM2_IB_START ib_start:6
0x4024 NPU_SET_OFM_SCALE shift:6 +scale:32
0x4025 NPU_SET_OPA_SCALE shift:6 +scale:32
0x4026 NPU_SET_OPB_SCALE +scale:16
0x4033 NPU_SET_DMA0_SKIP0 addr
0x4034 NPU_SET_DMA0_SKIP1 addr
0x4092 NPU_SET_SCALE1_BASE addr
0x4093 NPU_SET_SCALE1_LENGTH +length:20
"""

ENUMS: dict[str, dict[int, str]] = {
    "acc_format": {0: "I32", 1: "I40", 2: "F16"},
    "activation_clip_range": {
        0: "OFM_PRECISION",
        2: "FORCE_UINT8",
        3: "FORCE_INT8",
        5: "FORCE_INT16",
    },
    "activation_function": {
        0: "RELU",
        3: "TANH",
        4: "SIGMOID",
        16: "TABLE_0",
        17: "TABLE_1",
        18: "TABLE_2",
        19: "TABLE_3",
        20: "TABLE_4",
        21: "TABLE_5",
        22: "TABLE_6",
        23: "TABLE_7",
    },
    "broadcast_mode": {0: "DISABLE", 1: "ENABLE"},
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
    },
    "ifm2_operand_order": {0: "ORDER_B", 1: "ORDER_A"},
    "ifm_scale_mode": {0: "OPA_OPB_16", 1: "OPA_32", 2: "OPB_32"},
    "parallel_mode": {0: "SINGLE_CORE", 1: "DUAL_CORE_DEPTH"},
    "pooling_mode": {0: "MAX", 1: "AVERAGE", 2: "REDUCE_SUM"},
    "round_mode": {0: "DBL", 1: "TRUNCATE", 2: "NATURAL"},
}
