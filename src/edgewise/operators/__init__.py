"""What backends are made of: definitions of operators, and what follows from them.

A backend defines each operator once (`OperatorDefinition`): how it is lowered, what must hold, how
it is quantized, how exact it is. Which nodes are kept whole, what a quantizer annotates, the
operator table of the documentation and `edgewise ops` follow from that.
"""

from edgewise.operators.definition import OperatorDefinition, OperatorTable

__all__ = ["OperatorDefinition", "OperatorTable"]
