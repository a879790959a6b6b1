"""Masking of secrets in text that is kept: command lines, overrides, differences of source code.

Masked are values whose name says that they are secret (`password`, `api_key`, `HF_TOKEN`, …), passwords in URLs,
tokens of well-known makes wherever they stand, and private keys. What no pattern tells from ordinary text stays: a
person should hand secrets over in files and environment variables, which are not recorded.
"""

import re
from collections.abc import Sequence

MASK = "***"

_OWNERS = "access|api|app|auth|aws|azure|bearer|bot|deploy|gh|github|gitlab|hf|hub|jwt|npm|oauth|pypi|refresh|sas"
_OWNERS += "|encryption|secret|service|session|slack|user|wandb"
"""Words before `token` and `key` that make a secret of them; `mask_token` and `sort_key` are none."""
_BEFORE = r"[\w.-]{0,80}?"
_PLAIN = r"\w{0,40}(?:password|passwd|passphrase|secret)|pwd|credentials?|(?:secret|private|account)[_-]?key"
_OWNED = rf"(?:{_OWNERS})[_-]?(?:token|key(?:[_-]?id)?)"
_PASSES = r"(?:admin|auth|db|ftp|login|mail|my|pg|proxy|redis|root|smtp|sql|ssh|sudo|user)[_-]?pass|(?<=-)pass"
"""Words before `pass` that make a secret of it, and the option `--pass`; `forward_pass` is none."""
_SECRET_NAME = rf"-*(?:(?:{_BEFORE}[._-])?(?:{_PLAIN}|{_OWNED}|{_PASSES})|(?:{_BEFORE}\.)?token)"
"""Name of a secret, whatever stands before it: `db.password`, `--hf-token`, `AWS_SECRET_ACCESS_KEY`, `apiKey`."""

_NAME_ALONE = re.compile(_SECRET_NAME, re.IGNORECASE)
# Groups of alternatives are not possessive: before Python 3.11.5 those lose their place (CPython issue 106052).
_ASSIGNED = re.compile(
    rf"""(?<![\w.-])(?P<name>{_SECRET_NAME})
    (?P<sign>["']?+\s*+(?:\]\s*+)?+(?:=>|:=|=|:)\s*+ | ["']\s*+,\s*+(?=[bru]{{0,2}}["']))
    (?:(?P<prefix>[bfru]{{0,2}})(?P<quoted>
          \"{{3}}(?:[^"\\]|\\[\s\S]|"(?!""))*(?:\"{{3}}|\Z) | '{{3}}(?:[^'\\]|\\[\s\S]|'(?!''))*(?:'{{3}}|\Z)
        | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<bare>[^\s"'`,;&(){{}}\[\]<>]++)(?![(\[]))""",
    re.IGNORECASE | re.VERBOSE,
)
"""Secret name and value: `PASSWORD=x`, `"api_key": "x"`, `environ["HF_TOKEN"] = "x"`, `setenv("API_KEY", "x")`."""
_REST_OF_BARE = re.compile(r"""(?:[^\s"'`]|["'`](?=[^\s"'`,;)\]}]))*""")
"""Rest of a value without quotes, up to a blank or a closing quote: signs that end a word of code may be its own."""
_PASSWORD_OF_URL = re.compile(r"""(?<=://)(?P<user>[^\s"'<>:/@]{0,100}):[^\s"'<>]{0,500}@""")
_TOKEN_OF_URL = re.compile(r"""(?<=://)[^\s"'<>:/@]{16,500}@""")
_BEARER = re.compile(r"(?P<scheme>\b(?:Bearer|Basic)\s+)[\w+/=.~-]{8,}", re.IGNORECASE)
_KNOWN_MAKES = re.compile(
    r"""\b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bgh[pousr]_\w{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \bhf_[A-Za-z0-9]{16,} | \bsk-[\w-]{16,} | \bxox[abeoprs]-[\w-]{10,} | \bAIza[\w-]{30,}
    | \bnpm_\w{20,} | \bpypi-[\w-]{20,} | \bdckr_pat_[\w-]{16,}
    | \beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*""",
    re.VERBOSE,
)
_PRIVATE_KEY = re.compile(
    r"(?P<begin>-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?P<end>-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_SIGNED_URL = re.compile(r"(?<=[?&])(?P<name>X-Amz-Signature|sig|signature)=[^&\s\"'<>]+", re.IGNORECASE)
_HARMLESS = {"", "none", "null", "true", "false", "str", "bytes", "auto", "...", MASK}
"""Values that are no secrets: what a declaration or a default says."""


def mask_secrets(text: str) -> str:
    """Replace secrets in a text by `***`.

    >>> mask_secrets("registry: postgresql://lab:s3cret@db/lab, api_key='abc'")
    "registry: postgresql://lab:***@db/lab, api_key='***'"
    """
    text = _PRIVATE_KEY.sub(rf"\g<begin>{MASK}\g<end>", text)
    text = _PASSWORD_OF_URL.sub(rf"\g<user>:{MASK}@", text)
    text = _TOKEN_OF_URL.sub(f"{MASK}@", text)
    text = _KNOWN_MAKES.sub(MASK, text)
    text = _BEARER.sub(rf"\g<scheme>{MASK}", text)
    text = _SIGNED_URL.sub(rf"\g<name>={MASK}", text)
    return _mask_assigned(text)


def _mask_assigned(text: str) -> str:
    """Mask the values of secret names. What follows a value that stays is looked through, too."""
    masked: list[str] = []
    done = 0
    while found := _ASSIGNED.search(text, done):
        begin, done = done, found.end()
        name, sign, bare, quoted = found["name"], found["sign"], found["bare"], found["quoted"] or ""
        value = bare or quoted.strip("\"'")
        if value.lower() in _HARMLESS or _is_spared(name, bare, value, sign):
            masked.append(text[begin:done])
            continue
        quote = quoted[:3] if quoted.startswith(('"' * 3, "'" * 3)) else quoted[:1]
        masked.append(f"{text[begin : found.end('sign')]}{found['prefix'] or ''}{quote}{MASK}{quote}")
        rest = _REST_OF_BARE.match(text, done) if bare else None
        done = rest.end() if rest else done
    return "".join(masked) + text[done:]


def _is_spared(name: str, bare: str | None, value: str, sign: str) -> bool:
    """Whether a value is none: a variable that code hands on, as in `password=settings.password`, or the next name in a
    list."""
    if bare:
        return value.rpartition(".")[2].lower() == name.rpartition(".")[2].lstrip("-").lower()
    return "," in sign and _NAME_ALONE.fullmatch(value) is not None


def mask_words(words: Sequence[str]) -> list[str]:
    """Mask the words of a command; the word after an option such as `--token` is its value.

    >>> mask_words(["run", "--token", "hunter2", "db.password=a b", "mask_token=[MASK]"])
    ['run', '--token', '***', 'db.password=***', 'mask_token=[MASK]']
    """
    masked: list[str] = []
    is_value = False
    for word in words:
        masked.append(MASK if is_value and not word.startswith("--") else _mask_word(word))
        is_value = word.startswith("-") and _NAME_ALONE.fullmatch(word) is not None
    return masked


def _mask_word(word: str) -> str:
    """Mask one word: what follows the `=` of a secret name is its value to the end, blanks included."""
    name, equals, value = word.partition("=")
    if equals and _NAME_ALONE.fullmatch(name) and value.lower() not in _HARMLESS:
        return f"{name}={MASK}"
    return mask_secrets(word)
