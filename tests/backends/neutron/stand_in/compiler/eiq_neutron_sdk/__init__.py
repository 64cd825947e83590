"""STAND-IN for NXP's package, as it is named since version 3.2.3: a compiler."""
