"""Two networks that listen to voices: whose it is (an encoder), and whether there is one.

Layers are named as in the PyPI packages Resemblyzer and silero-vad, whose weights fit.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RATE = 16000
"""Samples per second."""
MELS = 40
CHUNK, CONTEXT = 512, 64
"""Samples of a step of the detector, and of the step before that it is shown again."""


class VoiceEncoder(nn.Module):
    """Mel spectra [N, frames, 40] to embeddings [N, 256] of length one.

    Source: "Generalized End-to-End Loss for Speaker Verification",
    https://arxiv.org/abs/1710.10467.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(MELS, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: Tensor) -> Tensor:
        """See the class."""
        _, (hidden, _) = self.lstm(mels)
        return F.normalize(F.relu(self.linear(hidden[-1])), dim=1)


class VoiceActivity(nn.Module):
    """Sound [N, 576] and state [2, N, 128] to the chance of a voice [N, 1], and state."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, 2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, 2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, sound: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See the class."""
        x = self.stft_conv(F.pad(sound[:, None], (0, 64), "reflect"))
        real, imaginary = x.split(129, 1)
        x = (real * real + imaginary * imaginary).sqrt()
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(layer(x))
        hidden, cell = self.lstm_cell(x.squeeze(-1), (state[0], state[1]))
        chance = torch.sigmoid(self.final_conv(F.relu(hidden)[..., None]))
        return chance[:, :, 0], torch.stack((hidden, cell))


def mel_spectra(sound: Tensor) -> Tensor:
    """Of sound at 16 kHz, in windows of 25 ms every 10 ms: [frames, 40]."""
    window = torch.hann_window(400)
    power = torch.stft(sound, 400, 160, window=window, return_complex=True).abs().square()
    return (_mel_filters() @ power).T


def _mel_filters() -> Tensor:
    """Triangles of equal area on Slaney's mel scale: linear to 1 kHz, logarithmic above."""
    step = torch.log(torch.tensor(6.4)) / 27
    top = 15 + torch.log(torch.tensor(RATE / 2 / 1000)) / step
    mels = torch.linspace(0, float(top), MELS + 2)
    edges = torch.where(mels < 15, mels * 200 / 3, 1000 * torch.exp((mels - 15) * step))
    bins = torch.linspace(0, RATE / 2, 201)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    area = 2 / (edges[2:] - edges[:-2])
    return torch.minimum(rising, falling).clamp(min=0) * area[:, None]
