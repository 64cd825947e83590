"""A Llama that generates: ours, the peer's, llama.cpp and OpenVINO, tokens per second.

300m: 24 layers of 1024, 16 heads of which 8 of keys, 2816 inside the blocks, 32000 tokens; 1.2b: 16
layers of 2048, 32 heads of which 8 of keys, 8192 inside, 128256 tokens. Random weights, 8da4w
(--group-size weights share a scale), embeddings in 8 bits, a cache of --context positions. Rows:
our file on our runtime, with keys and values in float32, and with --files ours-float16 in float16,
as llama.cpp has them; the file that the peer's own script for Llama models makes (XNNPACK
partitioner, its attention operators over the cache) on its runtime; and each file on the other's
runtime. With --others llama.cpp (Q4_0, embeddings in Q8_0) and OpenVINO (4-bit symmetric weights
by NNCF, a stateful cache), each in an environment of its own that is made at the first run. All
take turns, in processes of their own: blocks of --block tokens at each of --positions filled
positions of the cache, the prompt before. "over all" is the rate of a generation that spends as
many tokens at each of them. The ratio is of the medians of the rounds, ours to the best of the rows
of other runtimes.

"load s": from a Python that has imported nothing to the first token's logits, when a process before
has done the same: the second start. "cosine": of the logits after a prompt to ours, for those that
have the same weights. "of memory": the bytes of the file that a token reads (all but the
embeddings) over its time at the first position, to what two threads read per second from a large
array. Memory: the most that a process had, with and without what it had before it loaded the file
(Python, and for the peer torch).
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from _common import add_cache_options, report
from _environments import PACKAGES, python_of, version_of
from _frameworks import file_size
from _llm import Handler
from _worker import Worker, serve

HALF = "ours-float16"
"""Our file with keys and values in float16, as llama.cpp has them."""
ROWS = (("ours", "ours"), ("ours", HALF), ("peer", "peer"), ("peer", "ours"), ("ours", "peer"))
"""(whose runtime, whose file)"""
OTHERS = ("llama.cpp", "openvino")
"""Frameworks that run their own files only."""
SUFFIXES = {"llama.cpp": "gguf", "openvino": "xml"}
CONFIGS = {"tiny": (512, 64), "300m": (32000, 1024), "1.2b": (128256, 2048)}
"""Tokens, and values of each embedding."""
OVER_ALL = "tokens/s over all"


def files(options: argparse.Namespace) -> dict[str, Path]:
    """The file of each framework, made if it is not there: the peer's export takes minutes."""
    options.cache.mkdir(parents=True, exist_ok=True)
    found = {}
    for framework in (*options.files, *options.others):
        version = f"-{version_of(framework)}" if framework in PACKAGES else ""
        name = f"llama-{options.config}-{options.group_size}-{options.context}-{framework}{version}"
        target = options.cache / f"{name}.{SUFFIXES.get(framework, 'pte')}"
        if not target.exists() or (options.refresh and framework.startswith("ours")):
            print(f"preparing {target.name} ...", file=sys.stderr, flush=True)
            maker = str(Path(__file__).with_name("_llm.py"))
            script = [_python(framework, options), "-W", "ignore", maker]
            arguments = [framework, options.config, str(options.group_size), str(options.context)]
            with TemporaryDirectory(dir=options.cache) as folder:
                partial = Path(folder, target.name)
                done = subprocess.run(
                    [*script, *arguments, str(partial)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                if done.returncode:
                    raise SystemExit(f"{done.stdout}\n[prepare] {name} was not made; see above")
                for part in sorted(Path(folder).iterdir(), key=lambda file: file == partial):
                    part.rename(options.cache / part.name)
        found[framework] = target
    return found


def _python(framework: str, options: argparse.Namespace) -> str:
    # GGUF files are written by a package of this environment.
    return python_of(framework, options.cache) if framework == "openvino" else sys.executable


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Figures of each row of ROWS, and of the other frameworks."""
    paths = files(options)
    chosen = [row for row in ROWS if row[1] in options.files]
    chosen += [(framework, framework) for framework in options.others]

    def started(row: tuple[str, str]) -> tuple[Worker, dict[str, Any]]:
        worker = Worker(Path(__file__), row[0], python_of(row[0], options.cache))
        loaded = worker.ask(do="load", file=str(paths[row[1]]), threads=options.threads)
        return worker, loaded

    workers, loaded = {}, {}
    for row in chosen:
        started(row)[0].close()  # the first start: files get into memory
        workers[row], loaded[row] = started(row)
        # Positions that nothing was written to cost nothing to read.
        filled = max(options.positions) + options.block
        answer = workers[row].ask(do="prompt", position=0, count=filled, vocab=options.vocab)
        loaded[row]["logits"] = answer["logits"]
    decode: dict[Any, list[float]] = {(r, p): [] for r in chosen for p in options.positions}
    prompts = [(row, count) for row in chosen for count in options.prompt]
    prompt: dict[Any, list[float]] = {which: [] for which in prompts}
    for number in range(options.rounds + 1):
        for row, worker in workers.items():
            ask = {"vocab": options.vocab}
            time.sleep(0.03)  # pools spin for a while after their work
            for count in options.prompt:
                first = worker.ask(do="prompt", position=0, count=count, **ask)
                if number:  # the first round warms
                    prompt[row, count] += first["seconds"]
            # The cache is filled again for those who forget what is behind a position.
            filled = max(options.positions) + options.block
            worker.ask(do="prompt", position=0, count=filled, **ask)
            for position in reversed(options.positions):
                worker.ask(do="decode", position=position, count=2, **ask)
                answer = worker.ask(do="decode", position=position, count=options.block, **ask)
                if number:
                    decode[row, position].append(min(answer["seconds"]))
    rows = []
    for row, worker in workers.items():
        peak = worker.ask(do="memory")["peak"]
        line: dict[str, Any] = {"runtime": row[0], "file": row[1]}
        for count in options.prompt:
            line[f"prompt of {count}: tokens/s"] = count / median(prompt[row, count])
        seconds = {position: median(decode[row, position]) for position in options.positions}
        line |= {f"tokens/s at {position}": 1 / time for position, time in seconds.items()}
        line[OVER_ALL] = len(seconds) / sum(seconds.values())
        line |= {"peak MB": peak, "of it for the model": peak - loaded[row]["before"]}
        if row[1] != "peer":  # its script draws weights of its own
            line["cosine"] = cosine(loaded[row]["logits"], loaded[chosen[0]]["logits"])
        line["file MB"] = file_size(paths[row[1]]) / 1e6
        line["load s"] = loaded[row]["seconds"]
        rows.append(line)
        worker.close()
    return rows


def main() -> int:
    """Prints the table; the exit code says whether ours is 1.2 times the peer at each position."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", choices=("ours", "peer", *OTHERS), help=argparse.SUPPRESS)
    parser.add_argument("--config", default="300m", choices=tuple(CONFIGS))
    help = "ours without peer: the same file on both runtimes, without the peer's export"
    frameworks = ("ours", HALF, "peer")
    parser.add_argument(
        "--files", nargs="+", default=("ours", "peer"), choices=frameworks, help=help
    )
    parser.add_argument(
        "--others",
        nargs="*",
        default=(),
        choices=OTHERS,
        help="more frameworks, with their own files",
    )
    parser.add_argument("--group-size", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, nargs="+", default=[127, 512], help="tokens")
    parser.add_argument("--positions", type=int, nargs="+", default=[128, 320, 512, 704, 896])
    parser.add_argument("--block", type=int, default=16, help="tokens")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_cache_options(parser)
    options = parser.parse_args()
    if options.worker:
        serve(Handler(options.worker))
        return 0
    options.vocab, width = CONFIGS[options.config]
    if "ours" not in options.files:
        parser.error("--files must have ours")
    rows = measure(options)
    ours, half = rows[0], next((row for row in rows if row["file"] == HALF), None)

    def ratios_to(others: list[dict[str, Any]], some: dict[str, Any] = ours) -> dict[str, float]:
        return {
            key: some[key] / max(row[key] for row in others) for key in some if "tokens/s" in key
        }

    of_peer = ratios_to([row for row in rows if row["runtime"] == "peer"])
    others = [row for row in rows if row["runtime"] != "ours"]
    ratios = ratios_to(others)
    notes = [
        f"{key}: ours {ratio:.2f} times the best of the others" for key, ratio in ratios.items()
    ]
    if half:
        notes += [
            f"{key}: {HALF} {ratio:.2f} times the best of the others"
            for key, ratio in ratios_to(others, half).items()
        ]
    least = min(row["of it for the model"] for row in rows if row["runtime"] != "ours")
    notes.append(
        f"memory for the model: ours {ours['of it for the model'] / least:.2f} of the least"
    )
    embeddings = options.vocab * width / 1e6
    first = f"tokens/s at {options.positions[0]}"
    rate, possible = (ours["file MB"] - embeddings) * ours[first] / 1e3, read_rate(options.threads)
    notes.append(
        f"{first}: ours reads {rate:.1f} GB/s of weights, {rate / possible:.0%} of the "
        f"{possible:.1f} GB/s that {options.threads} threads read from a large array"
    )
    title = f"Llama {options.config}, 8da4w in groups of {options.group_size}, "
    report(title + f"{options.threads} threads", rows, notes, options.json, {"ratios": ratios})
    return 0 if all(r >= 1.2 for key, r in of_peer.items() if " at " in key) else 1


def cosine(some: list[float], others: list[float]) -> float:
    """Of the angle between two vectors."""
    import numpy as np

    x, y = np.array(some), np.array(others)
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def read_rate(threads: int) -> float:
    """GB/s that this many threads read at best from an array that no cache holds."""
    import numpy as np

    parts = np.ones((threads, 1 << 26), np.float32)

    def rate(pool: ThreadPoolExecutor) -> float:
        start = time.perf_counter()
        list(pool.map(np.max, parts))
        return parts.nbytes / (time.perf_counter() - start) / 1e9

    with ThreadPoolExecutor(threads) as pool:
        return max(rate(pool) for _ in range(9))


if __name__ == "__main__":
    sys.exit(main())
