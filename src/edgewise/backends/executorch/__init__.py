"""Backends that are ExecuTorch's own, by name: its package compiles, edgewise lowers."""
