"""Segments and words of speech as subtitles."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgewise.llm.alignment import Word
from edgewise.llm.timestamps import Segment

__all__ = ["FORMATS", "head_of"]


def _srt(number: int, said: Segment | Word, text: str) -> str:
    start, end = (_clock(seconds, ",") for seconds in (said.start, said.end))
    return f"{number}\n{start} --> {end}\n{text.strip()}\n"


def _vtt(number: int, said: Segment | Word, text: str) -> str:
    start, end = (_clock(seconds, ".") for seconds in (said.start, said.end))
    # An arrow would end what a cue says.
    return f"{start} --> {end}\n{text.strip().replace('-->', '->')}\n"


FORMATS: Mapping[str, Callable[[int, Segment | Word, str], str]] = {"srt": _srt, "vtt": _vtt}
"""Of a segment's or word's number from 1 on, itself and its text."""


def head_of(name: str) -> str:
    """What a file of that format begins with."""
    return "WEBVTT\n\n" if name == "vtt" else ""


def _clock(seconds: float, point: str) -> str:
    """Hours, minutes, seconds and thousandths."""
    thousandths = round(seconds * 1000)
    rest, thousandths = divmod(thousandths, 1000)
    rest, second = divmod(rest, 60)
    hour, minute = divmod(rest, 60)
    return f"{hour:02}:{minute:02}:{second:02}{point}{thousandths:03}"
