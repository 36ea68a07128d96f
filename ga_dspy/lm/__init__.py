"""The seam between programs and the LM: prompts, replies, retries, stored calls."""
