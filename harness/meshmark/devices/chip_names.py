# SPDX-License-Identifier: Apache-2.0
"""Finds the chips that a text names: by their own names, the kinds of their devices, and the names they are sold under.

A name counts as a reader takes it: H1OO, a Greek M or letters of full width look like what they are not.
"""

from __future__ import annotations

import re
import unicodedata

from meshmark.devices.chips import CHIPS, KINDS, OTHERS

_ALSO_OTHERS = {"trillium", "ironwood"}
"""Names that clusters and places have too. They are chips beside a word of accelerators, or with a number."""

_OF_CHIPS = {"tpu", "tpus", "google", "chip", "chips", "pod", "pods", "accelerator", "accelerators"}
"""Words beside which those names are names of chips."""

_ALIKE = {
    **{
        "A": "\u0391\u0410",
        "B": "\u0392\u0412",
        "C": "\u03f9\u0421",
        "E": "\u0395\u0415",
        "H": "\u0397\u041d",
    },
    **{
        "I": "\u0399\u0406\u04c0",
        "J": "\u037f\u0408",
        "K": "\u039a\u041a",
        "M": "\u039c\u041c",
        "N": "\u039d",
    },
    **{"O": "\u039f\u041e", "P": "\u03a1\u0420", "S": "\u0405", "T": "\u03a4\u0422", "V": "\u0474"},
    **{"X": "\u03a7\u0425", "Y": "\u03a5\u0423\u04ae", "Z": "\u0396"},
    **{"a": "\u03b1\u0430", "c": "\u03f2\u0441", "d": "\u0501", "e": "\u0435", "g": "\u0261", "h": "\u04bb"},
    **{
        "i": "\u03b9\u0456\u0131",
        "j": "\u03f3\u0458",
        "k": "\u03ba\u043a",
        "l": "\u04cf\u01c0",
        "m": "\u043c",
    },
    **{
        "o": "\u03bf\u043e",
        "p": "\u03c1\u0440",
        "q": "\u051b",
        "r": "\u0433",
        "s": "\u0455",
        "t": "\u03c4\u0442",
    },
    **{"u": "\u03c5", "v": "\u03bd\u0475", "w": "\u051d\u0461", "x": "\u03c7\u0445", "y": "\u0443\u04af"},
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
}
"""Latin letters, and the Greek, Cyrillic and other ones that look like them."""

_LATIN = str.maketrans({sign: latin for latin, signs in _ALIKE.items() for sign in signs})
_DIGITS = str.maketrans("oil", "011")


def plainly(text: str) -> str:
    """A text as a reader takes it, in small letters: letters that look alike are one, and marks over letters and signs
    of no width are left out."""
    signs = unicodedata.normalize("NFKD", text.translate(_LATIN))
    kept = "".join(sign for sign in signs if unicodedata.category(sign) not in ("Mn", "Me", "Cf"))
    return " ".join(kept.translate(_LATIN).lower().split())


def named_in(text: str) -> set[str]:
    """The chips of the table that a text names. `v4` is one only beside the word TPU: CPUs have a generation v4 too."""
    said = plainly(text)
    spelled = re.findall(r"[a-z0-9]+", said)
    own = {_folded(name): name for name in CHIPS}
    with_digits = {_folded(word) for word in spelled if re.search("[0-9]", word)}
    found = {own[word] for word in with_digits & set(own)}
    if not {"tpu", "tpus"} & set(spelled):
        found.discard("v4")
    for chip in CHIPS.values():
        if any(_is_sold_in(name.lower(), said, spelled) for name in chip.sold_as):
            found.add(chip.name)
    behind = "(?![a-z0-9 ])"  # TPU v5 is a kind, and TPU v5 lite another
    return found | {chip.name for kind, chip in KINDS.items() if _stands_in(kind.lower(), said, behind)}


def others_in(text: str) -> set[str]:
    """The accelerators that a text names and the table lacks."""
    spelled = re.findall(r"[a-z0-9]+", plainly(text))
    return {name for name in OTHERS if any(_folded(name) == _folded(word) for word in spelled)}


def _folded(text: str) -> str:
    """A text with digits in the place of the letters that look like them."""
    return text.translate(_DIGITS)


def _stands_in(name: str, said: str, behind: str = "(?![a-z0-9])") -> bool:
    """Whether a name stands in a text as whole words. behind: what may not follow it."""
    return re.search(rf"(?<![a-z0-9]){re.escape(_folded(name))}{behind}", _folded(said) + ".") is not None


def _is_sold_in(name: str, said: str, spelled: list[str]) -> bool:
    if not _stands_in(name, said):
        return False
    if name not in _ALSO_OTHERS or not _OF_CHIPS.isdisjoint(spelled):
        return True
    return re.search(rf"\d ?x? ?{name}(?![a-z0-9])|(?<![a-z0-9]){name}-\d", said) is not None
