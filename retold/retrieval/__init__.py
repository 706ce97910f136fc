"""From up to three gap queries to a short list of candidates: each stage a small pure function over what was found."""
