"""STAND-IN for NXP's module."""

from neutron_stand_in import getNeutronTargets, isNeutronTarget

__all__ = ["getNeutronTargets", "isNeutronTarget"]
