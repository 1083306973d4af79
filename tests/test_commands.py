"""The table of commands and parameters, and how a typed line is read."""

from __future__ import annotations

import pytest

from mlxspec.chat.commands import (
    COMMANDS,
    KEYS,
    Call,
    Takes,
    command,
    complete,
    key_text,
    parse,
    parse_setting,
)
from mlxspec.chat.parameters import PARAMETERS
from mlxspec.errors import UsageError

ISSUE = (
    "new chats search rename delete export system set target draft spec k seed think inspect view stats copy "
    "retry edit theme help quit"
)


def test_every_command_that_was_promised_is_there() -> None:
    assert set(ISSUE.split()) <= {known.name for known in COMMANDS}


def test_no_key_means_two_things() -> None:
    keys = [known.key for known in COMMANDS if known.key] + [known.key for known in KEYS]
    assert len(keys) == len(set(keys))


def test_what_takes_an_argument_says_which() -> None:
    for known in COMMANDS:
        assert bool(known.usage) == (known.takes is not Takes.NOTHING), known.name
        assert known.usage.startswith("[") == (known.takes is Takes.MAYBE), known.name


@pytest.mark.parametrize(
    "text", ["hello", "/usr/bin is full", " /new", "/", "//new", "/New", "a /new", "", "/new2", "/tmp/x"]
)
def test_a_message_is_no_command(text: str) -> None:
    assert parse(text) is None


def test_a_command_and_its_argument_are_told_apart() -> None:
    rename = command("rename")
    assert rename is not None
    assert parse("/rename  a new [/] title ") == Call(rename, "a new [/] title")
    system = parse("/system two\nlines")
    assert system is not None
    assert system.argument == "two\nlines"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("/exprot x", "Type /export"),
        ("/zzzz", "Type /help to see all"),
        ("/new chat", "Type /new alone."),
        ("/rename", "Type /rename TITLE."),
        ("/think maybe", "Type /think [on|off]."),
    ],
)
def test_a_command_that_makes_no_sense_says_what_would(text: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert says in raised.value.hint


def test_completion_goes_from_the_name_to_its_argument() -> None:
    names = {"drafts": ["auto", "lookup", "qwen-0.5b"], "chats": ["abcd"]}
    assert [found.line for found in complete("/dr", names)] == ["/draft "]
    assert [found.line for found in complete("/draft ", names)] == [
        "/draft auto",
        "/draft lookup",
        "/draft qwen-0.5b",
    ]
    assert [found.line for found in complete("/draft l", names)] == ["/draft lookup"]
    assert [found.line for found in complete("/think o", names)] == ["/think on", "/think off"]
    assert [found.line for found in complete("/set acc", names)] == ["/set accept "]
    assert [found.line for found in complete("/set accept b", names)] == ["/set accept block"]
    assert complete("hello", names) == []
    assert complete("/nonsense x", names) == []


def test_the_plain_chat_is_not_offered_what_it_cannot_do() -> None:
    assert complete("/view", {}, app=False) == []
    assert complete("/view", {})


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("temperature 0.5", "temperature", 0.5),
        ("top_k 40", "top-k", 40),
        ("think off", "think", False),
        ("k auto", "k", None),
        ("seed off", "seed", None),
        ("temperature default", "temperature", None),
        ("accept token", "accept", "token"),
        ("stop END", "stop", "END"),
    ],
)
def test_a_setting_is_read(text: str, name: str, value: object) -> None:
    parameter, found = parse_setting(text)
    assert (parameter.name, found) == (name, value)


@pytest.mark.parametrize(
    "text",
    ["temperature hot", "temperature -1", "temperature nan", "top-p 1.5", "top-k 2.5", "k 99", "think yes"],
)
def test_a_value_that_makes_no_sense_is_refused_with_what_would(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_setting(text)
    assert raised.value.hint.startswith("Give ")


def test_an_unknown_parameter_says_which_may_be_meant() -> None:
    with pytest.raises(UsageError, match="temprature") as raised:
        parse_setting("temprature 1")
    assert raised.value.hint == "Did you mean temperature?"


def test_every_value_that_is_shown_is_read_back() -> None:
    for name, value in (
        ("temperature", 0.25),
        ("top-k", 7),
        ("think", True),
        ("accept", "block"),
        ("seed", None),
    ):
        parameter = PARAMETERS[name]
        assert parameter.parse(parameter.show(value)) == value


def test_keys_are_written_as_people_write_them() -> None:
    assert [key_text(key) for key in ("ctrl+j", "f1", "pageup", "escape")] == ["Ctrl+J", "F1", "PgUp", "Esc"]
