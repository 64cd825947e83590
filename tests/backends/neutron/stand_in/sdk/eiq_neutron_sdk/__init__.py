"""STAND-IN for NXP's package, as it was named until version 3.2.2."""
