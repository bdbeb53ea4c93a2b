#!/usr/bin/env python3
"""Checks that comments of the product are sentences or nouns, in the words that its documentation uses.

  python3 tests/support/check_words.py ROOT

Fails on a comment that begins with a bare clause ("Of ...", "Whether ..."), after a name or on its own, and on a few
words that have a better one. Prints each place, and what to write.
"""

import pathlib
import re
import sys

FOLDERS = ("app", "datasets", "engine", "kernels")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
OPENING = re.compile(r"(Of|What|Where|Whether|How|As|With|Who|Whom|Whose)\b")
WORDS = {
    r"\bpictures?\b": "image",
    r"\bso (many|much)\b": "the number: N, this many, at most N",
    r"\bthat (are|is) there\b": "existing, installed, present",
    r"\banother one than\b": "other than",
}
COMMENT = re.compile(r"^(?P<code>.*?)//[/!]?<?\s?(?P<text>.*)$")
# A quoted text may contain slashes.
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'')


def comments(text):
    """Yields (line, comment, begins) for each line of a comment; `begins`: the comment begins there."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        found = COMMENT.match(STRING.sub('""', line))
        if not found:
            inside = False
            continue
        alone = not found["code"].strip()
        # A comment after code that goes on below is aligned with it.
        begins = not (alone and inside)
        yield number, found["text"], begins
        inside = True


def problems(path, text):
    for number, comment, begins in comments(text):
        opening = comment[:1].upper() + comment[1:]
        if begins and (found := OPENING.match(opening)):
            yield f"{path}:{number}: begins with \"{found[0]}\": begin with a verb (a function) or a noun (a field, a type)"
        for word, better in WORDS.items():
            if found := re.search(word, comment, re.IGNORECASE):
                yield f"{path}:{number}: \"{found[0]}\": write {better}"


def main():
    root = pathlib.Path(sys.argv[1])
    found = []
    count = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                count += 1
                found += problems(path.relative_to(root), path.read_text())
    print("\n".join(found))
    print(f"{count} files, {len(found)} comments to rewrite")
    sys.exit(1 if found or not count else 0)


if __name__ == "__main__":
    main()
