"""How sounds go into a prompt of Voxtral."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from edgewise.llm.export.processing import RecordingTokenizer
from edgewise.llm.export.tekken import save_tekken_tokenizer

__all__ = ["VoxtralProcessing"]


class VoxtralProcessing:
    """In the place of the library's processor, which takes sounds in whole conversations alone, by
    the package mistral-common.

    Source of what it makes: that processor. A sound is filled up to whole windows of 30 seconds,
    which share one spectrogram; a window is as many tokens as the encoder makes of it.
    """

    audio_token = "[AUDIO]"

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        from transformers import AutoFeatureExtractor, PreTrainedTokenizerFast

        extractor: Any = AutoFeatureExtractor
        self.feature_extractor = extractor.from_pretrained(folder, local_files_only=True)
        audio = config["audio_config"]
        rows = audio["max_source_positions"]
        self._count = rows * audio["hidden_size"] // audio["intermediate_size"]
        fast: Any = PreTrainedTokenizerFast
        with TemporaryDirectory() as made:
            file = folder / "tokenizer.json"
            if not file.is_file():
                file = save_tekken_tokenizer(folder / "tekken.json", Path(made)) / file.name
            self.tokenizer = RecordingTokenizer(fast(tokenizer_file=str(file)))

    def __call__(
        self, text: Sequence[str], audio: Sequence[Any], *, sampling_rate: int, return_tensors: str
    ) -> dict[str, Any]:
        """Of one text with one sound."""
        extractor = self.feature_extractor
        window = extractor.n_samples
        count = max(1, -(-len(audio[0]) // window))
        padded = np.pad(audio[0], (0, count * window - len(audio[0])))
        features = extractor(
            padded,
            sampling_rate=sampling_rate,
            truncation=False,
            padding=False,
            return_tensors=return_tensors,
        )["input_features"]
        words = "[BEGIN_AUDIO]" + self.audio_token * (count * self._count)
        written = [text[0].replace(self.audio_token, words)]
        tokens = self.tokenizer(written, return_tensors=return_tensors)
        windows = features.reshape(features.shape[1], count, -1).transpose(0, 1)
        return {**tokens, "input_features": windows}
