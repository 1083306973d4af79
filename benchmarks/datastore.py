"""What the datastore brings and what it costs, without a model.

    python benchmarks/datastore.py ANSWERS [--answers 10] [--tokens 69000] [--splits 3] [--json]

ANSWERS has a line [prompt length, temperature, ids] for each answer of a model, gzipped or not. Answers of
temperature 0.01 are replayed with the controller of `--num-draft auto`: a guess is kept when it is what the
answer has there, and a pass takes what the verify curve of OpenBLAS says. The datastore has learnt others of
the answers. Reported are speed-ups over plain decoding (geometric mean over the answers), for this chat alone
and with the datastore, and the milliseconds of looking up, opening and learning.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from mlxspec.decoding.acceptance_history import AcceptanceHistory
from mlxspec.decoding.adaptive import AdaptiveController
from mlxspec.decoding.controller import Outcome, Situation
from mlxspec.decoding.cost import VerifyCurve
from mlxspec.decoding.sampling import Rule, Sampler, SamplingParams
from mlxspec.drafters import lookup as lookup_module
from mlxspec.drafters.datastore import Datastore
from mlxspec.drafters.lookup import Lookup
from mlxspec.drafters.ngram_file import NgramFile, disk_bytes

CURVE = VerifyCurve(((1, 1.0), (2, 1.10), (3, 1.23), (4, 1.34), (5, 1.38), (6, 1.39), (8, 1.45), (16, 1.9)))
SAMPLER = Sampler(SamplingParams(temperature=0), vocab_size=1 << 17, rule=Rule.BLOCK, seed=0)
COLD = 0.01

Answer = tuple[list[int], list[int]]
"""Ids of the prompt and of the answer."""


def replay(answer: Answer, lookup: Lookup, history: AcceptanceHistory, most: int = 200) -> float:
    """Speed-up of one answer over plain decoding."""
    prompt, ids = answer[0], answer[1][:most]
    controller = AdaptiveController(CURVE, {}, history)
    lookup.reset([*prompt, ids[0]], SAMPLER, lambda: False)
    done, seconds = 1, 0.0
    queued = False
    while done < len(ids):
        situation = Situation(1, len(prompt) + done - 1, len(ids) - done, (lookup.offer(),))
        choice = controller.choose(situation)
        option = situation.options[0]
        proposal = lookup.propose(choice.k) if choice.k else None
        guesses: list[int] = [] if proposal is None else proposal.tokens.tolist()  # type: ignore[assignment]
        accepted = 0
        while accepted < len(guesses) and guesses[accepted] == ids[done + accepted]:
            accepted += 1
        emitted = ids[done : done + accepted + 1]
        round_s = CURVE.seconds(len(guesses) + 1)
        seconds += round_s
        controller.observe(
            Outcome(
                choice=choice,
                proposed=len(guesses),
                accepted=accepted,
                emitted=len(emitted),
                rows=len(guesses) + 1,
                context=situation.context,
                confidences=option.confidences[: len(guesses)],
                match_length=option.match_length,
                draft_s=None,
                round_s=round_s,
                queued=queued and choice.parked,
            )
        )
        queued = choice.parked
        done += len(emitted)
        lookup.committed(emitted, accepted)
    return (len(ids) - 1) / seconds


def agreement(answers: Sequence[Answer], lookup: Lookup, most: int = 200) -> float:
    """Share of tokens that would have been guessed right one by one."""
    right = total = 0
    for prompt, ids in answers:
        lookup.reset(prompt, SAMPLER, lambda: False)
        for token in ids[:most]:
            proposal = lookup.propose(1)
            right += proposal is not None and proposal.tokens.tolist() == [token]
            total += 1
            lookup.committed([token], 0)
    return right / total


def split(
    answers: Sequence[tuple[int, float, list[int]]], *, test: int, tokens: int, seed: int
) -> tuple[list[Answer], list[Answer]]:
    """Answers to replay, and others to learn, `tokens` in all."""
    shuffled = list(answers)
    random.Random(seed).shuffle(shuffled)
    parts = [(ids[:length], ids[length:]) for length, _, ids in shuffled]
    cold = [
        i for i, (_, temperature, _) in enumerate(shuffled) if temperature <= COLD and len(parts[i][1]) > 50
    ]
    tested = set(cold[:test])
    learnt: list[Answer] = []
    left = tokens
    for i, part in enumerate(parts):
        if i not in tested and left > 0:
            learnt.append((part[0], part[1][:left]))
            left -= len(part[1])
    return [parts[i] for i in cold[:test]], learnt


def geometric_mean(values: Sequence[float]) -> float:
    """Of numbers above 0."""
    return math.exp(statistics.fmean(map(math.log, values)))


def learn(path: Path, answers: Sequence[Answer]) -> list[float]:
    """Learn the answers one by one; seconds of each per 1,000 tokens."""
    paces = []
    with closing(NgramFile.open(path)) as file:
        for _, ids in answers:
            began = time.thread_time()
            file.learn(ids, "replayed")
            paces.append((time.thread_time() - began) / len(ids) * 1000)
    return paces


def costs(path: Path, answers: Sequence[Answer]) -> dict[str, float]:
    """Milliseconds: opening the file, and a chain of 8 from contexts that no one has looked up yet."""
    opening, chains = [], []
    for _ in range(20):
        began = time.thread_time()
        datastore = Datastore(path, target="replayed", vocab_size=1 << 17)
        datastore.begin()
        datastore.counts(1)
        opening.append(time.thread_time() - began)
        datastore.close()
    datastore = Datastore(path, target="replayed", vocab_size=1 << 17)
    lookup = Lookup(floor=0.0, datastore=datastore)
    lookup_module.MOST_GUESSES = 8
    for _, ids in answers:
        lookup.reset(ids[:5], SAMPLER, lambda: False)
        for start in range(5, min(len(ids), 60), 5):
            lookup.committed(ids[start : start + 5], 0)
            datastore.begin()
            began = time.thread_time()
            option = lookup.offer()
            if option.max_k == 8:
                chains.append(time.thread_time() - began)
    lookup_module.MOST_GUESSES = 16
    datastore.close()
    return {
        "open_ms": 1000 * min(opening),
        "chain_of_8_ms": 1000 * statistics.median(chains),
        "chain_of_8_best_ms": 1000 * min(chains),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("answers", type=Path)
    parser.add_argument("--answers", dest="test", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=69_000)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--weights", default=str(lookup_module.CHAT_WEIGHT), help="chat weights, with commas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    opened = gzip.open if options.answers.suffix == ".gz" else open
    with opened(options.answers, "rt", encoding="utf-8") as lines:
        answers = [tuple(json.loads(line)) for line in lines]
    weights = [float(weight) for weight in options.weights.split(",")]
    chat: list[float] = []
    chat_agreement: list[float] = []
    both: dict[float, list[float]] = {weight: [] for weight in weights}
    agreements: dict[float, list[float]] = {weight: [] for weight in weights}
    result: dict[str, object] = {}
    for seed in range(options.splits):
        tested, learnt = split(answers, test=options.test, tokens=options.tokens, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "replay.ngrams"
            paces = learn(path, learnt)
            history = AcceptanceHistory()
            chat += [replay(answer, Lookup(), history) for answer in tested]
            chat_agreement.append(agreement(tested, Lookup(floor=0.0)))
            for weight in weights:
                lookup_module.CHAT_WEIGHT = weight
                history = AcceptanceHistory()
                with closing(Datastore(path, target="replayed", vocab_size=1 << 17)) as datastore:
                    both[weight] += [
                        replay(answer, Lookup(datastore=datastore), history) for answer in tested
                    ]
                    agreements[weight].append(agreement(tested, Lookup(floor=0.0, datastore=datastore)))
            if seed == 0:
                result |= costs(path, tested)
                result["learn_1000_cpu_ms"] = 1000 * statistics.median(paces)
                result["bytes"] = disk_bytes(path)
    result |= {"chat": geometric_mean(chat), "chat_agreement": statistics.fmean(chat_agreement)}
    for weight in weights:
        result[f"datastore, weight {weight:g}"] = geometric_mean(both[weight])
        result[f"agreement, weight {weight:g}"] = statistics.fmean(agreements[weight])
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:28} {value:.3f}" if isinstance(value, float) else f"{name:28} {value}")


if __name__ == "__main__":
    main()
