"""Faults that are put into a line: (regular expression, replacement), one match at a time."""

from __future__ import annotations

BOTH = [
    (r" ==", r" !="),
    (r" !=", r" =="),
    (r" <", r" <="),
    (r" <=", r" <"),
    (r" >", r" >="),
    (r" >=", r" >"),
    (r" <", r" >"),
    (r" >", r" <"),
    (r" \+", r" -"),
    (r" -", r" +"),
    (r" \*(?= )", r" /"),
    (r" /(?= )", r" *"),
    (r" %", r" *"),
    (r"\+=", r"-="),
    (r"-=", r"+="),
    (r"\*=", r"/="),
    (r"(\W)0(?![\w.])", r"\g<1>1"),
    (r"(\W)1(?![\w.])", r"\g<1>0"),
    (r"(\W)1(?![\w.])", r"\g<1>2"),
    (r"(\W)([2-9])(?![\w.])", r"\g<1>1"),
    (r"(\W)(\d+\.\d+)(?!\w)", r"\1(2 * \2)"),
    (r"\bmin\(", r"max("),
    (r"\bmax\(", r"min("),
    (r"\babs\(", r"("),
    (r"([\(\s,])-(\w)", r"\1\2"),
]

PYTHON = [
    (r" //", r" *"),
    (r"^(\s*)if (.*):$", r"\1if not (\2):"),
    (r"^(\s*)elif (.*):$", r"\1elif not (\2):"),
    (r"^(\s*)while (.*):$", r"\1while not (\2):"),
    (r" and", r" or"),
    (r" or", r" and"),
    (r" not in", r" in"),
    (r" is not None", r" is None"),
    (r" is None", r" is not None"),
    (r"\bnot", r""),
    (r"(?<!strict=)\bTrue\b", r"False"),  # of zip it is an assertion
    (r"\bFalse\b", r"True"),
    (r"\ball\(", r"any("),
    (r"\bany\(", r"all("),
    (r"\breturn (?!(?:True|False)$)(.+)$", r"return None"),  # None counts as False
    (r"^(\s+)([\w.\[\]]+\(.*\)|\w+[.\[].* = .*|\w.* [+\-*/|&]= .*)$", r"\1pass"),
    (r" else", r" if False else"),
]

NATIVE = [
    (r"&&", r"||"),
    (r"\|\|", r"&&"),
    (r"if \((.*)\) \{", r"if (!(\1)) {"),
    (r"if \((.*)\) return", r"if (false && (\1)) return"),
    (r"if \((.*)\) continue", r"if (false && (\1)) continue"),
    (r"(\s)!(\w)", r"\1\2"),
    (r"\btrue\b", r"false"),
    (r"\bfalse\b", r"true"),
    (r"^(\s+)(EDGEWISE_(?:TRY|RETURN_IF_ERROR)\(.*\);)$", r"\1(void)0;"),
    (r"^(\s+)([\w.>\-\[\]]+ [+\-*/|&]?= .*;)$", r"\1;"),
    (r"^(\s+)([\w.>\-]+\(.*\);)$", r"\1;"),
    (r" \? (.*) : (.*);", r" ? \2 : \1;"),
]
