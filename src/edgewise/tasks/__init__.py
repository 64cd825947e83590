"""Models with what goes before and after them: a text, a picture or a sound in, an answer out.

    classify = edgewise.load("folder")  # made by edgewise.compile("hf-folder", task=...)
    classify("A fine film.")  # [{"label": "positive", "score": 0.99}, ...]

Needs numpy, for texts tokenizers, for pictures Pillow; no torch.
"""

from __future__ import annotations

from edgewise.tasks.description import TASKS, Description
from edgewise.tasks.model import TaskModel, open_task

__all__ = ["TASKS", "Description", "TaskModel", "open_task"]
