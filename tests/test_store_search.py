"""Search over messages and titles: what people type is text, never an operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlxspec.chat.records import MessageState
from mlxspec.chat.store import Store
from mlxspec.events import Origin, Tokens
from mlxspec.places import places


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(Store.open(places())) as store:
        yield store


def chat_with(store: Store, *texts: str) -> str:
    chat = store.create_chat(target="target", draft="auto").id
    for text in texts:
        store.add_message(chat, "assistant", text)
    return chat


def found(store: Store, query: str) -> set[str]:
    return {hit.chat for hit in store.search(query)}


@pytest.mark.parametrize(
    "query",
    [
        "elephant",
        "ELEPHANT",
        "lepha",
        "grey elephant",
        "elephant grey",
        "el",
        "  elephant  ",
        "große",
        "象",
        "灰色の象",
    ],
)
def test_parts_of_words_in_any_order_case_and_script_are_found(store: Store, query: str) -> None:
    chat = chat_with(store, "A grey Elephant is große", "灰色の象がいる")
    chat_with(store, "nothing of interest")
    assert found(store, query) == {chat}


def test_every_word_must_be_in_the_same_message(store: Store) -> None:
    chat_with(store, "grey cat", "pink elephant")
    assert found(store, "grey elephant") == set()


@pytest.mark.parametrize(
    "query",
    ['"', '""', "it's", 'say "hi', "a AND b", "NOT", "OR OR", "NEAR(a b)", "content:x", "*", "x*", "^x", "(",
     ")", "-x", "+", "\\", "%", "_", "';--", "{a}", ":", "\0",
     "a\0b", "\x1b[2J", "[/]", "🙂"],
)  # fmt: skip
def test_operators_of_the_search_language_are_text(store: Store, query: str) -> None:
    chat = chat_with(store, f"before {query} after")
    other = chat_with(store, "zzz")
    hits = found(store, query)
    assert other not in hits
    assert hits == {chat} or not query.strip("\0")


@given(st.text(max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
def test_no_query_is_an_error(store: Store, query: str) -> None:
    chat_with(store, "some text")
    store.search(query)


def test_an_empty_query_finds_nothing(store: Store) -> None:
    chat_with(store, "text")
    assert store.search("") == store.search("  \n") == []


def test_wildcards_of_like_are_text(store: Store) -> None:
    chat_with(store, "100 percent")
    assert found(store, "1%") == set()
    assert found(store, "_") == set()


def test_a_hit_shows_the_match_and_what_stands_around_it_on_one_line(store: Store) -> None:
    chat_with(store, "x" * 100 + "\nthe white  rabbit\nruns " + "y" * 100)
    (hit,) = store.search("Rabbit")
    assert hit.match == "rabbit"
    assert hit.before.endswith(" the white ")
    assert hit.before.startswith("…x")
    assert hit.after.startswith(" runs yyy")
    assert hit.after.endswith("y…")
    assert "\n" not in hit.before + hit.match + hit.after


def test_titles_are_found_and_come_first(store: Store) -> None:
    in_text = chat_with(store, "about penguins")
    in_title = chat_with(store, "something else")
    store.rename(in_title, "Penguins")
    hits = store.search("penguin")
    assert [(hit.chat, hit.message is None) for hit in hits] == [(in_title, True), (in_text, False)]
    store.rename(chat_with(store), "Penguins, but no message yet")
    assert len(store.search("penguin")) == 2
    store.rename(in_title, "Seals")
    assert found(store, "penguin") == {in_text}


def test_newer_messages_come_first_and_the_limit_holds(store: Store) -> None:
    chats = [chat_with(store, f"common word {number}") for number in range(5)]
    assert [hit.chat for hit in store.search("common", limit=3)] == chats[:1:-1]


def test_an_answer_is_found_once_it_has_ended(store: Store) -> None:
    chat = store.create_chat(target="target", draft="auto").id
    writer = store.answer(chat)
    writer.append(Tokens((1,), "walrus", Origin.PLAIN, None, 0))
    writer.finish(MessageState.DONE)
    assert writer.wait(30)
    assert found(store, "walrus") == {chat}
