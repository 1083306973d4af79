"""A chat as Markdown keeps its structure whatever is in it; as JSON it keeps everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from markdown_it import MarkdownIt

from mlxspec.chat.export import to_json, to_markdown
from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store
from mlxspec.events import Origin, Tokens
from mlxspec.places import places


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(Store.open(places())) as store:
        yield store


def exported(
    store: Store, *, question: str = "question", answer: str = "answer", title: str = "Title"
) -> str:
    chat = store.create_chat(target="target", draft="auto").id
    store.add_message(chat, "user", question)
    store.add_message(chat, "assistant", answer)
    store.rename(chat, title)
    return to_markdown(store.chat(chat), store.path(chat))


def headings(markdown: str, *, deepest: int = 2) -> list[tuple[str, str]]:
    tokens = MarkdownIt("commonmark").parse(markdown)
    return [
        (token.tag, "".join(child.content for child in tokens[number + 1].children or []))
        for number, token in enumerate(tokens)
        if token.type == "heading_open" and int(token.tag[1]) <= deepest
    ]


def test_a_chat_has_its_title_and_a_heading_for_each_message(store: Store) -> None:
    markdown = exported(store, question="Why?", answer="Because.")
    assert headings(markdown) == [("h1", "Title"), ("h2", "User"), ("h2", "Assistant")]
    assert "Why?" in markdown
    assert markdown.endswith("\n\nBecause.\n")


@pytest.mark.parametrize(
    "title",
    ["# Not *one* [link](x) `code`", "<script>alert(1)</script>", "a\n## Assistant", "&amp; | \\",
     "[/] ![x](y)", "1. one", "--- ", "x\n==="],
)  # fmt: skip
def test_a_title_is_one_heading_of_plain_text(store: Store, title: str) -> None:
    markdown = exported(store, title=title)
    assert headings(markdown) == [("h1", " ".join(title.split())), ("h2", "User"), ("h2", "Assistant")]
    (inline,) = [token for token in MarkdownIt("commonmark").parse(markdown)[1:2] if token.children]
    assert {child.type for child in inline.children or []} <= {"text", "text_special"}


@pytest.mark.parametrize(
    "body",
    [
        "# Heading\ntext",
        "## Assistant\n\nforged",
        "   # indented\n#\n# Closed #",
        "Setext\n===\n\nTwo\nlines\n---\nend",
        "```python\nprint('# not a heading')\n# still code",
        "~~~~\n~~~\ncode",
        "```",
        "<!-- an open comment",
        "<div>\n\n<script>\nlet x",
        "text\r\n# Heading after a carriage return\r## Another",
        "- list\n\n      code\n- # heading in a list",
        "> quote\n> # heading in a quote",
        "<pre>\n# a",
        "a\0b",
        "",
    ],
)
def test_nothing_in_a_message_leaves_its_part(store: Store, body: str) -> None:
    expected = [("h1", "Title"), ("h2", "User"), ("h2", "Assistant")]
    top = [h for h in headings(exported(store, question=body)) if h in expected]
    assert top == expected
    for place in ("question", "answer"):
        markdown = exported(store, **{place: body})
        level_0 = [
            token.tag
            for token in MarkdownIt("commonmark").parse(markdown)
            if token.type == "heading_open" and token.level == 0
        ]
        assert [tag for tag in level_0 if tag in ("h1", "h2")] == ["h1", "h2", "h2"]


def test_headings_in_a_message_are_lowered_and_code_is_not_touched(store: Store) -> None:
    body = "# One\n\n##### Five\n\nTwo\nlines\n---\n\n```\n# code\n```\n\nend"
    lowered = "### One\n\n###### Five\n\n#### Two lines\n\n```\n# code\n```\n\nend\n"
    assert exported(store, answer=body).endswith(f"## Assistant\n\n{lowered}")


def test_an_open_fence_is_closed(store: Store) -> None:
    assert exported(store, answer="````py\nx = 1\n```\n").endswith("````py\nx = 1\n```\n````\n")


def test_an_answer_that_was_stopped_says_so(store: Store) -> None:
    chat = store.create_chat(target="target", draft="auto", system="Be kind.").id
    store.answer(chat).finish(MessageState.STOPPED)
    store.close()
    with closing(Store.open(places())) as store:
        markdown = to_markdown(store.chat(chat), store.path(chat))
    assert [text for _, text in headings(markdown)][1:] == ["System", "Assistant (stopped)"]


def test_json_has_all_branches_with_origins_and_statistics(store: Store) -> None:
    chat = store.create_chat(target="target", draft="auto", params={"temp": 0.0}).id
    question = store.add_message(chat, "user", "question 漢字 \x1b[31m")
    for text in ("one", "two"):
        writer = store.answer(chat, after=question.id)
        writer.append(Tokens((1, 2), text, Origin.ACCEPTED, "lookup", 3))
        writer.finish(MessageState.DONE, stats={"tokens": 2})
        assert writer.wait(30)
    text = to_json(store, store.chat(chat))
    document = json.loads(text)
    assert "\x1b" not in text
    assert document["chat"]["id"] == chat
    assert document["chat"]["params"] == {"temp": 0.0}
    first, one, two = document["messages"]
    assert first["content"] == "question 漢字 \x1b[31m"
    assert one["parent"] == two["parent"] == first["id"]
    assert document["chat"]["head"] == two["id"]
    assert two["stats"] == {"tokens": 2}
    assert two["spans"] == [
        {"ids": [1, 2], "text": "two", "origin": "accepted", "drafter": "lookup", "round": 3}
    ]
