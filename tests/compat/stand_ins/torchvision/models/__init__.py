from . import mobilenetv2

__all__ = ["mobilenetv2"]
