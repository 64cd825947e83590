"""torchao is imported without its messages about kernels for other machines."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_TALKATIVE = ("torchao", "torch.utils._pytree")


@contextmanager
def quiet_torchao() -> Iterator[None]:
    """Within it, importing torchao says errors alone."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def declare_quantized_operators() -> None:
    """Imports who declares `quantized_decomposed`: torch, or torchao for newer releases of it."""
    try:
        import torch.ao.quantization.fx._decomposed  # noqa: F401
    except ImportError:
        with quiet_torchao():
            import torchao.quantization.pt2e  # noqa: F401
