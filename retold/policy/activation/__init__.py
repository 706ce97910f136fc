"""Which preferences may be always on: evidence in the user's own words, proposals by policies, decided by rules.

`evidence` finds what the principal said, `reading` and its word lists say what kind of statement it is, `rules`
decide. No model is asked about a record that is not eligible, and no model's answer can promote on its own.
"""
