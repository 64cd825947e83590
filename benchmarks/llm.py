"""A Llama that generates: ours and the peer's, tokens per second.

300m: 24 layers of 1024, 16 heads of which 8 of keys, 2816 inside the blocks, 32000 tokens; random
weights, 8da4w (--group-size weights share a scale), embeddings in 8 bits, a cache of --context
places. Rows: our file on our runtime; the file that the peer's own script for Llama models makes
(XNNPACK partitioner, its attention operators over the cache) on its runtime; and each file on
the other's runtime. All take turns, in processes of their own: blocks of --block tokens at each of
--positions filled places of the cache, the prompt before. "over all" is the rate of a generation
that spends as many tokens at each of them. The ratio is of the medians of the rounds, ours to the
best of the rows that the peer's runtime runs.

Memory: the most that a process had, with and without what it had before it loaded the file
(Python, and for the peer torch).
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from _common import add_cache_options, report
from _llm import Handler
from _worker import Worker, serve

ROWS = (("ours", "ours"), ("peer", "peer"), ("peer", "ours"), ("ours", "peer"))
"""(whose runtime, whose file)"""
OVER_ALL = "tokens/s over all"


def files(options: argparse.Namespace) -> dict[str, Path]:
    """The file of each side, made if it is not there: the peer's export takes minutes."""
    options.cache.mkdir(parents=True, exist_ok=True)
    found = {}
    for side in options.files:
        name = f"llama-{options.config}-{options.group_size}-{options.context}-{side}.pte"
        target = options.cache / name
        if not target.exists() or (options.refresh and side == "ours"):
            print(f"preparing {name} ...", file=sys.stderr, flush=True)
            partial = target.with_suffix(".partial.pte")
            script = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("_llm.py"))]
            arguments = [side, options.config, str(options.group_size), str(options.context)]
            done = subprocess.run(
                [*script, *arguments, str(partial)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if done.returncode:
                raise SystemExit(f"{done.stdout}\n[prepare] {name} could not be made; see above")
            partial.rename(target)
        found[side] = target
    return found


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Figures of each row of ROWS."""
    paths = files(options)
    chosen = [row for row in ROWS if row[1] in paths]
    workers = {row: Worker(Path(__file__), row[0]) for row in chosen}
    before = {}
    for (runtime, whose), worker in workers.items():
        answer = worker.ask(do="load", file=str(paths[whose]), threads=options.threads)
        before[runtime, whose] = answer["before"]
        # Places that nothing was written to cost nothing to read.
        filled = max(options.positions) + options.block
        worker.ask(do="prompt", position=0, count=filled, vocab=options.vocab)
    decode: dict[Any, list[float]] = {(r, p): [] for r in chosen for p in options.positions}
    prompt: dict[Any, list[float]] = {r: [] for r in chosen}
    for number in range(options.rounds + 1):
        for row, worker in workers.items():
            ask = {"vocab": options.vocab}
            time.sleep(0.03)  # pools spin for a while after their work
            first = worker.ask(do="prompt", position=0, count=options.prompt, **ask)
            if number:  # the first round warms
                prompt[row] += first["seconds"]
            for place in options.positions:
                worker.ask(do="decode", position=place, count=2, **ask)
                answer = worker.ask(do="decode", position=place, count=options.block, **ask)
                if number:
                    decode[row, place].append(min(answer["seconds"]))
    rows = []
    for row, worker in workers.items():
        peak = worker.ask(do="memory")["peak"]
        line: dict[str, Any] = {"runtime": row[0], "file": row[1]}
        line["prompt tokens/s"] = options.prompt / median(prompt[row])
        seconds = {place: median(decode[row, place]) for place in options.positions}
        line |= {f"tokens/s at {place}": 1 / time for place, time in seconds.items()}
        line[OVER_ALL] = len(seconds) / sum(seconds.values())
        line |= {"peak MB": peak, "of it for the model": peak - before[row]}
        rows.append(line)
        worker.close()
    return rows


def main() -> int:
    """Prints the table; the exit code says whether ours is 1.2 times as fast at each position."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", choices=("ours", "peer"), help=argparse.SUPPRESS)
    parser.add_argument("--config", default="300m", choices=("tiny", "300m"))
    sides = ("ours", "peer")
    help = "ours alone: the same file on both runtimes, without the peer's export"
    parser.add_argument("--files", nargs="+", default=sides, choices=sides, help=help)
    parser.add_argument("--group-size", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=127, help="tokens")
    parser.add_argument("--positions", type=int, nargs="+", default=[128, 320, 512, 704, 896])
    parser.add_argument("--block", type=int, default=16, help="tokens")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_cache_options(parser)
    options = parser.parse_args()
    if options.worker:
        serve(Handler(options.worker))
        return 0
    options.vocab = {"tiny": 512, "300m": 32000}[options.config]
    if "ours" not in options.files:
        parser.error("--files must have ours")
    rows = measure(options)
    ours = rows[0]
    ratios = {
        key: ours[key] / max(row[key] for row in rows if row["runtime"] == "peer")
        for key in ours
        if "tokens/s" in key
    }
    notes = [f"{key}: ours {ratio:.2f} times the peer's best" for key, ratio in ratios.items()]
    title = f"Llama {options.config}, 8da4w in groups of {options.group_size}, "
    report(title + f"{options.threads} threads", rows, notes, options.json, {"ratios": ratios})
    return 0 if all(r >= 1.2 for key, r in ratios.items() if " at " in key) else 1


if __name__ == "__main__":
    sys.exit(main())
