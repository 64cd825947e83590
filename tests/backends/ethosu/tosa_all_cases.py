"""All random graphs by name."""

from __future__ import annotations

import tosa_data_cases
import tosa_value_cases
from tosa_cases import CASES, U85_CASES

__all__ = ["CASES", "U85_CASES", "tosa_data_cases", "tosa_value_cases"]
