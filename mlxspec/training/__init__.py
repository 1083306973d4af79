"""Drafts trained from a target's own words: corpus, losses, loops."""
