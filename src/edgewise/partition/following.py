"""Rules that refuse a node only because of what is beside it: consequences, not causes."""

from __future__ import annotations

AT_THE_BORDER = "what goes to the NPU is quantized elsewhere"
BEHIND_THE_BORDER = "what leaves the NPU is dequantized elsewhere"
WITH_ITS_OPERATOR = "a quantization goes with its operator"
TAKES_INTEGERS = "the NPU takes and gives int8"
WITH_ITS_READER = "constants go with what reads them"
WEIGHTS_WITH_OPERATOR = "quantized weights go with their operator"
ALL_OR_NOTHING = "all that belongs to a quantized operator must be delegated"

FOLLOWING = frozenset(
    (
        AT_THE_BORDER,
        BEHIND_THE_BORDER,
        WITH_ITS_OPERATOR,
        TAKES_INTEGERS,
        WITH_ITS_READER,
        WEIGHTS_WITH_OPERATOR,
        ALL_OR_NOTHING,
    )
)

MOVED_IN_FLOAT = "it has its operand's scale, and the operand is in floating point"
"""Of what a scheme leaves in floating point: the cause is what computes the operand."""
