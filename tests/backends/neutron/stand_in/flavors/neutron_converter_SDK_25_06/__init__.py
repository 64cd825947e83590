"""STAND-IN for NXP's package for MCUXpresso SDK 25.06."""
