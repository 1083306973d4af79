"""What an answer consisted of while it streamed, as rows of JSON: its tokens, and why they are there.

Reports are kept with three digits of each probability and times to 0.01 ms: a round takes about 150 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from mlxspec.chat.records import storable
from mlxspec.events import Origin, RoundReport, Tokens


def encoded_tokens(batch: Iterable[Tokens]) -> str:
    """The body of one row of `spans`."""
    return _json(
        [list(tokens.ids), tokens.text, tokens.origin, tokens.drafter, tokens.round] for tokens in batch
    )


def decoded_tokens(body: str) -> list[Tokens]:
    """The tokens of one row of `spans`."""
    return [
        Tokens(ids=tuple(ids), text=text, origin=Origin(origin), drafter=drafter, round=round_number)
        for ids, text, origin, drafter, round_number in json.loads(body)
    ]


def encoded_reports(batch: Iterable[RoundReport]) -> str:
    """The body of one row of `rounds`."""
    return _json(
        [
            report.round,
            report.drafter,
            list(report.guesses),
            list(report.guess_texts),
            report.accepted,
            report.next_id,
            report.next_text,
            [_share(p) for p in report.p],
            [_share(q) for q in report.q],
            None if report.p_next is None else _share(report.p_next),
            round(report.draft_s, 5),
            round(report.verify_s, 5),
            round(report.round_s, 5),
            int(report.parked),
        ]
        for report in batch
    )


def decoded_reports(body: str) -> list[RoundReport]:
    """The reports of one row of `rounds`."""
    return [
        RoundReport(
            round=number,
            drafter=drafter,
            guesses=tuple(guesses),
            guess_texts=tuple(texts),
            accepted=accepted,
            next_id=next_id,
            next_text=next_text,
            p=tuple(p),
            q=tuple(q),
            p_next=p_next,
            draft_s=draft_s,
            verify_s=verify_s,
            round_s=round_s,
            parked=bool(parked),
        )
        for (
            number,
            drafter,
            guesses,
            texts,
            accepted,
            next_id,
            next_text,
            p,
            q,
            p_next,
            draft_s,
            verify_s,
            round_s,
            parked,
        ) in json.loads(body)
    ]


def _share(value: float) -> float:
    return float(f"{value:.3g}")


def _json(rows: Iterable[list[object]]) -> str:
    return storable(json.dumps(list(rows), ensure_ascii=False, separators=(",", ":")))
