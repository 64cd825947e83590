"""How exact a lowered program is, layer by layer, and what to keep in floating point."""
