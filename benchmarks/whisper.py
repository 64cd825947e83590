"""Half a minute of speech through a net of whisper-tiny's shape: ours, ExecuTorch, OpenVINO.

Weights are random, and the text's tokens given: times are a transcription's, words are not. Each
framework has a file or two of the same weights, in float32 and with 4-bit weights in groups of 32
(ours and ExecuTorch's: 8da4w by torchao; OpenVINO's: by NNCF), and a process of its own; they take
turns. The real-time factor is the time for encoder and --tokens steps of the decoder by 30 s. The
features, which every framework takes from its caller, are not in it.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from _common import add_cache_options, report
from _environments import python_of
from _whisper import SESSIONS, Handler
from _worker import Worker, serve

from llm import cosine

SECONDS = 30


def prepared(framework: str, scheme: str, cache: Path) -> Path:
    """The folder of a framework's files, made if it is not there."""
    folder = cache / f"whisper-{framework}-{scheme}"
    if folder.exists():
        return folder
    print(f"{folder.name} ...", file=sys.stderr, flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache) as partial:
        made = Path(partial, "made")
        made.mkdir()
        script = str(Path(__file__).with_name("_whisper.py"))
        subprocess.run(
            [python_of(framework, cache), "-W", "ignore", script, framework, scheme, str(made)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        made.rename(folder)
    return folder


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each framework and scheme."""
    rows = []
    for scheme in options.schemes:
        folders = {
            framework: prepared(framework, scheme, options.cache)
            for framework in options.frameworks
        }
        workers = {
            framework: Worker(Path(__file__), framework, python_of(framework, options.cache))
            for framework in folders
        }
        sizes = {
            framework: workers[framework].ask(
                do="load", folder=str(folder), threads=options.threads
            )["bytes"]
            for framework, folder in folders.items()
        }
        answers: dict[str, list[dict[str, Any]]] = {framework: [] for framework in workers}
        for number in range(options.rounds + 1):
            for framework, worker in workers.items():
                time.sleep(0.3)  # pools spin for a while after their work
                answer = worker.ask(do="transcribe", tokens=options.tokens)
                if number:  # the first round warms
                    answers[framework].append(answer)
        for framework, worker in workers.items():
            worker.close()
            encode, decode = (
                median(a[part] for a in answers[framework]) for part in ("encode", "decode")
            )
            rows.append(
                {
                    "weights": scheme,
                    "runtime": framework,
                    "real-time factor": (encode + decode) / SECONDS,
                    "encoder ms": 1e3 * encode,
                    "ms a token": 1e3 * decode / options.tokens,
                    "cosine": cosine(answers[framework][0]["logits"], answers["ours"][0]["logits"]),
                    "file MB": sizes[framework] / 1e6,
                }
            )
    return rows


def main() -> int:
    """Prints the table; the exit code says whether ours is the fastest throughout."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--worker", choices=tuple(SESSIONS), help=argparse.SUPPRESS)
    parser.add_argument("--frameworks", nargs="+", default=list(SESSIONS), choices=tuple(SESSIONS))
    schemes = ("float32", "8da4w")
    parser.add_argument("--schemes", nargs="+", default=schemes, choices=schemes)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_cache_options(parser)
    options = parser.parse_args()
    if options.worker:
        serve(Handler(options.worker))
        return 0
    if "ours" not in options.frameworks:
        parser.error("--frameworks must have ours")
    rows = measure(options)
    notes, worst = [], 0.0
    for scheme in options.schemes:
        ours, *others = (row for row in rows if row["weights"] == scheme)
        if not others:
            continue
        best = min(others, key=lambda row: row["real-time factor"])
        ratio = ours["real-time factor"] / best["real-time factor"]
        worst = max(worst, ratio)
        notes.append(f"{scheme}: ours takes {ratio:.2f} of the time of the best other one")
    title = f"Whisper-tiny's shape, {SECONDS} s, {options.tokens} tokens, {options.threads} threads"
    report(title, rows, notes, options.json)
    return 0 if worst < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
