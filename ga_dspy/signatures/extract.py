"""Extract: everything that one passage states, with no question in mind."""

from __future__ import annotations

import dspy

from ga_dspy.signatures.proposal import GraphProposal


class ExtractFacts(dspy.Signature):
    """List what a passage states, as entities and relations of a knowledge graph.

    The graph will answer questions that nobody has asked yet, so list all the passage says of
    people, places, organisations, works, events, dates and quantities, the thing in its title
    first. In an entity's parentheses give its type, then what tells it from others of its name.
    Write every name in full, as the passage spells it; where it says "he" or "the film", write
    the name meant. Keep relations to a short phrase in the passage's words. Behind a relation
    write (time: …) if the passage says when it holds, and (confidence: 0.6) or another number
    from 0 to 1 if the passage leaves doubt. End each line with the number of the passage in
    square brackets. Both ends of a relation must occur in the passage. State only what it states:
    no guesses, no "unknown" entries, nothing from memory. If feedback is given, your previous
    attempt had those faults: mend them or leave the items out.
    """

    passages: str = dspy.InputField(desc="the passage to read, numbered")
    feedback: str = dspy.InputField(desc="faults of the previous attempt, if any", default="")
    additions: GraphProposal = dspy.OutputField(desc="all that the passage states")
