"""Renamed copies of datasets, on which a strong LM can answer only by reading.

Every name of a file (people, places, works, organisations) becomes an invented one of its kind,
the same wherever it occurs: in contexts and titles, questions, answers and aliases, supporting
facts, question decompositions and evidences. The work is done on words, so that relations
survive: father and son keep sharing a surname, "University of Kansas" and "Kansas City" a word,
"Austria" and "Austrian" a stem. Structure words ("University of", "Lake", "Sir") stay.

What stays: yes and no, numbers and dates, common words, months, weekdays, faiths, directions,
parties, roman numerals, generic acronyms (TV, DNA), disambiguators in parentheses as far as they
hold no name, and every id. Demonyms and languages ("French") are renamed with their country.
Wikidata ids, which would show who is meant, are emptied. Names made of nothing but structure
words ("Supreme Court") stay unless they are answers ("World War II", "Green Bay"), and so do
common words used as a name without a paragraph or a quotation to show it. What is common shows in
the file: words that it writes in lower case behind articles and in many names ("Diocese") are
structure, too.

A question's names follow their owners in its paragraphs where they are misspelt, in lower case or
initials. The report counts the questions whose gold paragraphs can be followed before and after:
every word of a gold title that the question or another gold paragraph mentions must still stand
in both; it lists those that lost one, and the answers that stayed.

The files in the order of the ideas: `words` (what is never a name, tokens, invented words),
`names` (where a row holds text, which words are proper, the names and their kinds), `plan` (what
to replace, and doing it), `rename` (rows: replace, check and repair; files).
"""

from __future__ import annotations

from ga_dspy.eval.renaming.rename import Provenance as Provenance
from ga_dspy.eval.renaming.rename import Renamed as Renamed
from ga_dspy.eval.renaming.rename import RenameReport as RenameReport
from ga_dspy.eval.renaming.rename import Renaming as Renaming
from ga_dspy.eval.renaming.rename import provenance as provenance
from ga_dspy.eval.renaming.rename import record_path as record_path
from ga_dspy.eval.renaming.rename import rename_file as rename_file
from ga_dspy.eval.renaming.rename import rename_rows as rename_rows
