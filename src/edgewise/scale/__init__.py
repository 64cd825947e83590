"""Many models, much data: calibration, accuracy and sweeps, here or on a Ray cluster.

    edgewise.scale.sweep("plan.yaml")
    edgewise.scale.calibrate(prepared, batches)
    edgewise.scale.evaluate("model.pte", samples, "top1")
    edgewise.scale.search(model, inputs, quantize="int8", calibration=batches, evaluation=batches)

How it is made, from the bottom:

- `task`: a task is a named function and plain arguments. Its key is a digest of both and of the
  versions of what computes; results depend on nothing else.
- `process`: each task runs in a process of its own, forked behind the imports, and is ended when it
  passes its limits. An error, a crash, a limit are outcomes like any other. `supervisor`: if the
  process that forks is lost, the task is tried again.
- `machine`: tasks run beside each other, or alone when they measure; locks of the file system
  hold between all workers of a machine.
- `engine`: `local` and `ray_engine` are two implementations of one small interface; Ray's workers
  run the same supervisor, so that rows are the same.
- `store`: outcomes by key and files by content, in a folder or wherever fsspec reaches. Files are
  renamed into place when they are whole.
- `drive`: a job is a generator that yields tasks and is sent outcomes. What the store knows is not
  run; what two jobs ask for runs once; only so many jobs are open that queues stay short.
- `stages`: load, data -> build -> evaluate, measure: functions of content. `combine` is the job
  that makes a row of them, `searching` one that tries which modules to keep in float;
  `mixed_precision` is that search alone, for a model in memory.
- `plan`, `plan_file`, `checked`: what to do, frozen; errors name the key of the YAML file.
- `sweeping` runs a plan; `rows`, `show`, `plot`, `page` write what came of it.
- `shards`, `portable`, `observers`, `metrics`: calibration and accuracy on shards, whose states
  are merged; `sharded_metric` gives `quantize="auto"` the accuracy of each program it tries.
"""

from typing import Any

from edgewise.lazy import attribute

_LAZY = {
    "METRICS": "edgewise.scale.metrics",
    "Limits": "edgewise.scale.task",
    "LocalEngine": "edgewise.scale.local",
    "Plan": "edgewise.scale.plan",
    "PlanError": "edgewise.scale.checked",
    "RayEngine": "edgewise.scale.ray_engine",
    "ShardedMetric": "edgewise.scale.sharded_metric",
    "Store": "edgewise.scale.store",
    "Task": "edgewise.scale.task",
    "calibrate": "edgewise.scale.shards",
    "evaluate": "edgewise.scale.shards",
    "make_plan": "edgewise.scale.plan_file",
    "read_plan": "edgewise.scale.plan_file",
    "search": "edgewise.scale.mixed_precision",
    "sweep": "edgewise.scale.sweeping",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: this takes torch."""
    return attribute(__name__, _LAZY, name)


__all__ = list(_LAZY)
