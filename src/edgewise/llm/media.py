"""What a program makes of images and sounds, for prompts that have some."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgewise.llm.audio import AudioEncoder
from edgewise.llm.images import ImageEncoder
from edgewise.llm.vectors import VectorTokens
from edgewise.runtime import Program

__all__ = ["Media"]


class Media:
    """Its encoders. For several generators of one program and several threads.

    vocab_size: tokens of a text are below. grids: as of `ImageEncoder`.
    """

    images: ImageEncoder | None = None
    audio: AudioEncoder | None = None

    def __init__(self, program: Program, vocab_size: int, grids: Sequence[int] = ()) -> None:
        sees, hears = (
            [name for name in program.method_names if name.startswith(kind)]
            for kind in ("vision_encoder", "audio_encoder")
        )
        counts = [program.metadata(name).output_tensor_meta(0).sizes()[-2] for name in sees + hears]
        self.vectors = VectorTokens(vocab_size, max(map(int, counts)))
        """What they made, by the numbers of their tokens."""
        if sees:
            self.images = ImageEncoder(program, self.vectors, grids)
        if hears:
            self.audio = AudioEncoder(program, self.vectors)

    @staticmethod
    def is_in(method_names: Collection[str]) -> bool:
        """Whether a program with these methods sees or hears."""
        names = set(method_names)
        has_texts = {"text_decoder", "token_embedding"} <= names
        return has_texts and bool({"vision_encoder", "audio_encoder"} & names)
