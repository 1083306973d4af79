"""How questions begin, so that a target left to itself does not always ask for the same kind of text.

The target goes on from such a beginning to the end of the question, and then answers it.
"""

from __future__ import annotations

import random

OPENINGS: dict[str, tuple[str, ...]] = {
    "chat": (
        "", "", "Hi! ", "Can you ", "What do you think about ", "I am planning ", "My friend ", "Should I ",
        "How do I ", "Give me tips for ", "Help me decide ", "I feel ",
    ),
    "explain": (
        "Explain ", "What is ", "Why does ", "How does ", "What is the difference between ", "Describe ",
        "Who was ", "When did ", "Explain step by step how ", "Compare ",
    ),
    "code": (
        "Write a Python function that ", "Write a Python class ", "Write a Python script that ",
        "Write a JavaScript function that ", "Write a function in C that ", "Write a SQL query that ",
        "Write a Java method ", "Write a unit test for ", "Explain this code:\n\n```python\ndef ",
        "Write a bash script that ", "Write a TypeScript interface for ", "Implement ",
    ),
    "edit": (
        "Fix the grammar of this text: ", "Rewrite this sentence more politely: ", "Fix the bug:\n\ndef ",
        "Correct the spelling: ", "Rename the variables in this code:\n\n", "Shorten this paragraph: ",
        "Turn this into a list: ", "Add comments to this code:\n\ndef ", "Translate into simple words: ",
    ),
    "json": (
        "Return a JSON object with ", "Convert this to JSON: ", "Write a JSON array of ",
        "Give me a JSON schema for ", "Extract the names and dates as JSON: ", "Write a YAML file for ",
    ),
    "markup": (
        "Write an HTML page with ", "Write an HTML form for ", "Write CSS for ", "Make a Markdown table of ",
        "Write an HTML table of ", "Write a README for ", "Write the HTML for a navigation bar with ",
    ),
    "math": (
        "Solve ", "Calculate ", "A train ", "If a shop sells ", "What is the area of ", "Prove that ",
        "Simplify the expression ", "Find the derivative of ", "How many ",
    ),
    "write": (
        "Write a short story about ", "Write a poem about ", "Write an email to ", "Write a letter to ",
        "Summarise ", "Write a product description for ", "Write a speech about ", "Make a list of ",
        "Write a dialogue between ", "Draft a report on ",
    ),
}  # fmt: skip


def some_openings(count: int, rng: random.Random) -> list[str]:
    """Beginnings of `count` questions, each kind as often as the others."""
    kinds = list(OPENINGS)
    return [rng.choice(OPENINGS[kinds[i % len(kinds)]]) for i in range(count)]
