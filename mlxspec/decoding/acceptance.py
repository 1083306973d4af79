"""The acceptance rules: which guesses stay, and which token follows them.

Pure functions of arrays. Every function takes any number of leading batch axes (written `...`),
so that the tests draw 100,000 rounds at once with the code that decodes one.

Shapes: p [..., k + 1, vocab], the target's distributions; guesses [..., k]; q [..., k, vocab], the
distributions that the guesses were drawn from, or None where each guess was certain; uniform
[..., k] in [0, 1); gumbel [..., vocab]. p and q are float32, not necessarily normalised exactly.

Uniform and Gumbel noise must be independent of each other and of the noise that drew the guesses.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True, slots=True)
class Verdict:
    """`accepted` [...]: how many guesses stay; `next_token` [...]: the target's token after them."""

    accepted: mx.array
    next_token: mx.array


def keep_while_equal(choices: mx.array, guesses: mx.array) -> Verdict:
    """Keep guesses while they equal the target's own choices [..., k + 1].

    This is every rule at temperature 0 (choices = argmax), and the `coupled` rule at any temperature
    (choices drawn with noise that depends on the position alone; Daliri et al. 2024).
    """
    k = guesses.shape[-1]
    if k == 0:
        return Verdict(mx.zeros(choices.shape[:-1], mx.int32), choices[..., 0])
    equal = (choices[..., :k] == guesses).astype(mx.int32)
    accepted = mx.cumprod(equal, axis=-1).sum(axis=-1)
    return Verdict(accepted, _pick(choices, accepted))


def token_rule(
    p: mx.array, guesses: mx.array, q: mx.array | None, *, uniform: mx.array, gumbel: mx.array
) -> Verdict:
    """Keep each guess with probability min(1, p / q), up to the first that goes.

    Leviathan et al. 2022, "Fast inference from transformers via speculative decoding"; Chen et al. 2023.
    """
    k = guesses.shape[-1]
    if k == 0:
        return Verdict(mx.zeros(p.shape[:-2], mx.int32), draw(p[..., 0, :], gumbel))
    p_guess = _of_guesses(p[..., :k, :], guesses)  # [..., k]
    q_guess = mx.array(1.0) if q is None else _of_guesses(q, guesses)
    # Strictly less, and as a product: p = 0 is never kept, and q = 0 divides nothing.
    kept = (uniform * q_guess < p_guess).astype(mx.int32)
    accepted = mx.cumprod(kept, axis=-1).sum(axis=-1)
    return Verdict(accepted, _draw_residual(p, guesses, q, accepted=accepted, rho=None, gumbel=gumbel))


def block_rule(
    p: mx.array, guesses: mx.array, q: mx.array | None, *, uniform: mx.array, gumbel: mx.array
) -> Verdict:
    """Verify the guesses jointly: keep the longest prefix that passes its own test.

    Sun et al. 2024, "Block verification accelerates speculative decoding". Certain guesses (q None)
    gain nothing from a joint test, so they take the token rule.
    """
    k = guesses.shape[-1]
    if q is None or k == 0:
        return token_rule(p, guesses, q, uniform=uniform, gumbel=gumbel)
    p_guess = _of_guesses(p[..., :k, :], guesses)
    q_guess = _of_guesses(q, guesses)
    ratio = mx.where(q_guess > 0, p_guess / mx.maximum(q_guess, 1e-37), 0.0)
    rhos = [mx.ones(p.shape[:-2])]
    for i in range(k):
        rhos.append(mx.minimum(rhos[-1] * ratio[..., i], 1.0))
    rho = mx.stack(rhos, axis=-1)  # [..., k + 1], from rho_0 = 1
    pass_probability = rho[..., k:]  # h_k = rho_k
    if k > 1:
        inner = rho[..., 1:k]  # [..., k - 1]
        mass = mx.maximum(inner[..., None] * p[..., 1:k, :] - q[..., 1:, :], 0.0).sum(axis=-1)
        whole = mass + 1.0 - inner
        h = mx.where(whole > 0, mass / mx.maximum(whole, 1e-37), 0.0)
        pass_probability = mx.concatenate([h, pass_probability], axis=-1)
    lengths = mx.arange(1, k + 1)
    accepted = mx.where(uniform < pass_probability, lengths, 0).max(axis=-1).astype(mx.int32)
    return Verdict(accepted, _draw_residual(p, guesses, q, accepted=accepted, rho=rho, gumbel=gumbel))


def draw(weights: mx.array, gumbel: mx.array) -> mx.array:
    """One token id [...] from weights [..., vocab], which need not add up to 1 (Gumbel-max)."""
    return mx.argmax(mx.log(weights) + gumbel, axis=-1)


def _draw_residual(
    p: mx.array,
    guesses: mx.array,
    q: mx.array | None,
    *,
    accepted: mx.array,
    rho: mx.array | None,
    gumbel: mx.array,
) -> mx.array:
    """The token after the kept ones: from max(rho p - q, 0), or from p when all were kept."""
    k = guesses.shape[-1]
    p_next = _pick_row(p, accepted)  # [..., vocab]
    rejected = (accepted < k)[..., None]
    last = mx.minimum(accepted, k - 1)
    if q is None:
        is_guess = mx.arange(p.shape[-1]) == _pick(guesses, last)[..., None]
        residual = mx.where(is_guess & rejected, 0.0, p_next)
    else:
        scaled = p_next if rho is None else _pick(rho, accepted)[..., None] * p_next
        residual = mx.maximum(scaled - mx.where(rejected, _pick_row(q, last), 0.0), 0.0)
    empty = residual.sum(axis=-1, keepdims=True) <= 0
    return draw(mx.where(empty, p_next, residual), gumbel)


def _of_guesses(rows: mx.array, guesses: mx.array) -> mx.array:
    """rows [..., k, vocab] at guesses [..., k] -> [..., k]."""
    return mx.take_along_axis(rows, guesses[..., None], axis=-1)[..., 0]


def _pick(values: mx.array, index: mx.array) -> mx.array:
    """values [..., n] at index [...] -> [...]."""
    return mx.take_along_axis(values, index[..., None], axis=-1)[..., 0]


def _pick_row(rows: mx.array, index: mx.array) -> mx.array:
    """rows [..., n, vocab] at index [...] -> [..., vocab]."""
    if rows.ndim == 2:
        return mx.take(rows, index, axis=0)
    return mx.take_along_axis(rows, index[..., None, None], axis=-2)[..., 0, :]
