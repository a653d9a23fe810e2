# SPDX-License-Identifier: MIT
"""Writes unicode_class_table.inc: which characters are letters, numbers and white space.

Facts of the Unicode Character Database (unicode.org/Public/16.0.0/ucd): general categories L* and
N*, and the property White_Space. Version 16 is what Oniguruma had when the reference splits of
tests/engine/model/pre_tokenizer_test.cpp were made. Needs the package unicodedata2 16.0.0, which
carries that version's tables (Python's own are as old or new as Python is):

    python3 engine/model/unicode_class_table.py > engine/model/unicode_class_table.inc
"""

import unicodedata2

VERSION = "16.0.0"
# PropList.txt, White_Space: the separators (Z*) and these controls.
WHITE_CONTROLS = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}


def class_of(code):
    category = unicodedata2.category(chr(code))
    if category[0] == "Z" or code in WHITE_CONTROLS:
        return "kSpace"
    return {"L": "kLetter", "N": "kNumber"}.get(category[0])


def ranges():
    first, current = 0, None
    for code in range(0x110001):
        found = class_of(code) if code < 0x110000 else None
        if found != current:
            if current:
                yield first, code - 1, current
            first, current = code, found


def main():
    assert unicodedata2.unidata_version == VERSION, unicodedata2.unidata_version
    print("// SPDX-License-Identifier: MIT")
    print(f"// Written by unicode_class_table.py from Unicode {VERSION}: {{first, last, class}}.")
    rows = [f"{{0x{a:x}, 0x{b:x}, {c}}}," for a, b, c in ranges()]
    line = ""
    for row in rows:
        if len(line) + len(row) + 1 > 100:
            print(line)
            line = ""
        line += (" " if line else "") + row
    print(line)


if __name__ == "__main__":
    main()
