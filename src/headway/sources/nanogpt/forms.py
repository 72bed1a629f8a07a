"""Forms of lines in the nanoGPT family that tell of an iteration, and of what else a program does."""

from __future__ import annotations

import re
from typing import Final

UNIT: Final = {"ms": 1e-3, "s": 1.0}
"""What a time counts [s]."""

_NANOGPT: Final = re.compile(
    r"\biter (?P<step>\d{1,18}): .{0,200}?\btime:? (?P<took>[^\s,]{1,40}?)(?P<unit>ms|s)\b"
    r"(?:.{0,120}?\bmfu (?P<mfu>[^\s,%]{1,20})%)?"
)
_LITGPT: Final = re.compile(
    r"\biter (?P<step>\d{1,18}) step \d{1,18}(?: \||:) .{0,200}?\biter time: (?P<took>[^\s,]{1,40}?) ?(?P<unit>ms)\b"
)
_TABLED: Final = re.compile(
    r"\bstep +(?P<step>\d{1,18})(?:/(?P<planned>\d{1,18}))?(?: \((?P<percent>\d{1,3}(?:\.\d{1,9})?)%\))?(?: ?\||:) ?"
    r"(?:train )?loss\b.{0,200}?(?:\bdt: ?|[|(] ?(?:took )?)(?P<took>[^\s|,(]{1,40}?) ?(?P<unit>ms)\b"
    r"(?:.{0,160}?(?:\| (?P<mfu>[^\s|%]{1,20})% \w{1,9} MFU|\b(?:\w{1,9}_)?mfu: (?P<share>[^\s|%]{1,20})))?"
)
FORMS: Final = (_NANOGPT, _LITGPT, _TABLED)
"""Of nanoGPT, of litgpt, of llm.c, build-nanogpt and nanochat; the groups ``planned``, ``percent``, ``mfu`` and
``share`` are of some alone."""
ANY: Final = re.compile(
    rb"iter(?<![a-ln-zA-Z\d_]iter) (?:\d+: [^\r\n]{0,200}?\btime:? [\d.]+m?s\b|"
    rb"\d+ step \d+[ :][^\r\n]{0,200}?\biter time: [\d.]+ ?ms\b)|"
    rb"step(?<![a-ln-zA-Z\d_]step)(?: +\d+(?:/\d+)?(?: \([\d.]+%\))?(?: ?\||:) ?(?:train )?loss\b[^\r\n]{0,200}?"
    rb"(?:\bdt: ?|[|(] ?(?:took )?)[\d.]+ ?ms\b|:\d+/\d+ [^\r\n]{0,200}?\btrain_time: ?[\d.]+m?s\b)"
)
"""A line of any form, a speedrun's too; right in front of its first word may be a colour, which ends with an m."""
STEPS: Final = (b"iter ", b"train_time:", b"dt: ", b" ms")
"""A line of such a form holds one of these."""
OTHERS: Final = (
    b"val loss ", b"aving checkpoint to", b"tokens per iteration will be", b"validation loss: ", b"HellaSwag accuracy",
    b"Validation bpb", b"CORE metric", b"Saved model parameters", b"Writing checkpoint at step", b"| Parameter ",
    b"otal training time: ", b"Training time: ", b"total average iteration time",
)  # fmt: skip
"""A line that tells of something else holds one of these."""

BEGIN: Final = r"(?:^|[|)\]:] )\s*"
"""Where a line's own text begins: at its beginning, or behind what a program that ran this one put in front."""
EVALUATED: Final = re.compile(r"\bstep (\d{1,18}): train loss \S+ val loss ")
"""nanoGPT: the time is in the iteration of that number."""
WITHIN: Final = re.compile(r"\bvalidation loss: \d|\bHellaSwag accuracy: \d")
"""build-nanogpt: the time is in the next step."""
TIMED: Final = re.compile(r"\b(?:iter|step) \d{1,18}: val loss \S+ val time: (\d[^\s]{0,39}?) ?(ms|s)\b")
"""litgpt: with the time that it took."""
BETWEEN: Final = re.compile(BEGIN + r"val loss [\d.]+\s*$|\bStep \d+ \| (?:Validation bpb|CORE metric): ")
"""llm.c and nanochat: between the steps."""
SAVED: Final = re.compile(
    r"\bWriting checkpoint at step (\d{1,18})|\bSaved model parameters to:? .{0,400}_(\d{1,18})\.pt\b"
)
"""llm.c, which counts the steps done; nanochat, which counts from 0 and names the next."""
STARTED: Final = re.compile(r"\btokens per iteration will be\b|\| Parameter +\| Value +\|")
"""nanoGPT and llm.c, before the first step."""
ENDED: Final = re.compile(
    BEGIN + r"(?:Total training time: [\d.]+m|total average iteration time: [\d.]+ ms|Training time: [\d.]+s)"
)
"""nanochat, llm.c and litgpt, when all is done."""
