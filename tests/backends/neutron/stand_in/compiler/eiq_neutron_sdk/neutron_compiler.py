"""STAND-IN for NXP's module."""

from neutron_stand_in import CompilationContext, getNeutronTarget
from neutron_stand_in import convertModel as compileModel

__all__ = ["CompilationContext", "compileModel", "getNeutronTarget"]
