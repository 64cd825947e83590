"""Arm Ethos-U NPUs: lowering through TOSA and Vela, and a simulator of their programs."""
