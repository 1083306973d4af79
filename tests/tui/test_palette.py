"""Colours that can be read, told apart by all eyes, and done without."""

from __future__ import annotations

from itertools import combinations

import pytest
from rich.color import Color, ColorSystem

from mlxspec.events import Origin
from tui.palette import COLOURS, SELECTED, Palette, origin_style, theme_for

ORIGINS = ("draft", "lookup", "resampled", "bonus", "plain")
CONTRAST = 4.5  # WCAG AA
DIFFERENCE = 15  # CIE 1976; about 2 can just be seen

# Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
Linear = tuple[float, float, float]


def linear(colour: str) -> Linear:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return red, green, blue


def luminance(colour: str) -> float:
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, eye: str) -> Linear:
    source = linear(colour)
    r, g, b = (max(0.0, min(1.0, sum(m * v for m, v in zip(row, source, strict=True)))) for row in EYES[eye])
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def in_256_colours(colour: str) -> str:
    return Color.parse(colour).downgrade(ColorSystem.EIGHT_BIT).get_truecolor().hex


@pytest.mark.parametrize("theme", COLOURS)
def test_every_text_colour_can_be_read_on_every_background_it_stands_on(theme: str) -> None:
    colours = COLOURS[theme]
    for name, colour in colours.foregrounds.items():
        if name == "bar":
            continue
        backgrounds = [colours.background]
        if name in ORIGINS:
            backgrounds.append(colours.marked)
        else:
            backgrounds.append(colours.surface)
        for background in backgrounds:
            assert contrast(colour, background) >= CONTRAST, (name, colour, background)


def test_marked_text_can_be_read() -> None:
    assert contrast(*SELECTED) >= CONTRAST


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", COLOURS)
def test_origins_look_different_to_every_eye(theme: str, eye: str) -> None:
    foregrounds = COLOURS[theme].foregrounds
    for one, other in combinations(ORIGINS, 2):
        a, b = lab(foregrounds[one], eye), lab(foregrounds[other], eye)
        assert sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5 >= DIFFERENCE, (one, other)


@pytest.mark.parametrize("theme", COLOURS)
def test_256_colours_keep_all_this(theme: str) -> None:
    colours = COLOURS[theme]
    background = in_256_colours(colours.background)
    shown = [in_256_colours(colours.foregrounds[name]) for name in ORIGINS]
    assert all(contrast(colour, background) >= CONTRAST for colour in shown)
    assert shown[:4] == [colours.foregrounds[name] for name in ORIGINS[:4]]
    assert contrast(in_256_colours(colours.foregrounds["muted"]), background) >= CONTRAST


def test_without_colours_every_origin_still_has_a_look_of_its_own() -> None:
    palette = Palette("dark", colour=False)
    looks = {str(palette.style(name)) for name in ORIGINS}
    assert len(looks) == len(ORIGINS)
    assert all(palette.style(name).color is None for name in ORIGINS)


def test_a_token_in_the_place_of_a_wrong_guess_is_underlined_with_colours_too() -> None:
    assert Palette("dark").style("resampled").underline


def test_draft_and_lookup_are_told_apart() -> None:
    assert origin_style(Origin.ACCEPTED, "draft_model") == "draft"
    assert origin_style(Origin.ACCEPTED, "lookup") == "lookup"
    assert origin_style(Origin.BONUS, "lookup") == "bonus"


@pytest.mark.parametrize(
    ("says", "theme"), [("15;0", "dark"), ("0;15", "light"), ("0;default;15", "light"), ("", "dark")]
)
def test_auto_goes_by_what_the_terminal_says(says: str, theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORFGBG", says)
    assert theme_for("auto") == theme


def test_an_unknown_theme_is_as_good_as_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLORFGBG", raising=False)
    assert theme_for("solarised") == "dark"
