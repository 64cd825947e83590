"""STAND-IN for NXP's module."""

from neutron_stand_in import CompilationContext, convertModel, getNeutronTarget

__all__ = ["CompilationContext", "convertModel", "getNeutronTarget"]
