"""Masking of secrets in kept text: hostile examples disappear, ordinary text and code stay as they are.

pytest tests/orchestrator/provenance/test_secret_masking.py
"""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.provenance.secret_masking import MASK, mask_secrets, mask_words

CANARY = "c4n4ry"
TOKENS = [
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "github_pat_11ABCDEFG0123456789_abcdefghij",
    "glpat-abcDEF123456_7890xyz",
    "hf_" + "aBcD1234" * 4,
    "sk-proj-abcdefghijklmnop1234",
    "xoxb-123456789012-abcdefghij",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "npm_" + "a1b2c3d4e5f6g7h8i9j0k1l2",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r",
]


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://lab:{CANARY}@db/lab",
        f"postgresql://lab:{CANARY}/with?odd@signs#@db/lab",
        f"https://{CANARY}abcdefghijkl@example.org/repo.git",
        f"postgresql://db/lab?user=lab&password={CANARY}",
        f"https://bucket/key?X-Amz-Signature={CANARY}&X-Amz-Date=1",
        f"PASSWORD={CANARY}",
        f"export HF_TOKEN={CANARY}",
        f"AWS_SECRET_ACCESS_KEY = {CANARY}",
        f'  "api_key": "{CANARY}",',
        f"{{'clientSecret': '{CANARY}'}}",
        f"db_password: {CANARY}",
        f'password = "with \\" a quote {CANARY}"',
        f"apiKey => {CANARY}",
        f"passphrase:{CANARY}",
        f"Authorization: Bearer {CANARY}12345678",
        f"curl -H 'authorization: basic {CANARY}1234=='",
        f"-----BEGIN RSA PRIVATE KEY-----\n+{CANARY}\n+{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}  (cut off)",
        f"+    connect(host, pwd='{CANARY}', user='lab')",
        f"+WANDB_API_KEY: {CANARY}",
        f'os.environ["HF_TOKEN"] = "{CANARY}"',
        f"os.environ [ 'HF_TOKEN' ] = b'{CANARY}'",
        f'setenv("API_KEY", "{CANARY}")',
        f"-e PGPASS={CANARY} -e db_pass={CANARY} --pass={CANARY}",
        f'ENCRYPTION_KEY="{CANARY}"',
        f'password="""{CANARY}"""',
        f"password = '''\n+a {CANARY}\n+'' {CANARY}\n'''",
        f'password="""cut off {CANARY}',
        f'password=b"{CANARY}"',
        f'password=rb"""{CANARY}"""',
        f"the password=$up,{CANARY};x&{CANARY}){CANARY} was typed",
        f"f(password=password,token={CANARY},{CANARY})",
        f'password=ab"{CANARY}',
        *(f'+x = "{token}"' for token in TOKENS),
    ],
)
def test_secrets_disappear(text: str) -> None:
    masked = mask_secrets(text)
    assert MASK in masked
    assert CANARY not in masked
    assert not any(token in masked for token in TOKENS)
    assert mask_secrets(masked) == masked, "masking twice is masking once"


@pytest.mark.parametrize(
    "text",
    [
        "token_objective: mlm",
        "max_tokens = 512",
        "mask_token: [MASK]",
        "pad_token='<pad>'",
        "tokenizer=storage/tokenizers/words",
        "def connect(self, password: str | None = None) -> None:",
        "connect(password=settings.password, token=token)",
        "secret = read_secret(path)",
        "api_key = os.environ['API_KEY']",
        "sorted(rows, key=lambda row: row.id)",
        "sort_key = first.second",
        "https://example.org/a:b/c@d",
        "s3://bucket/folder/file.txt",
        "recipe.learning_rate=3e-5",
        "password=None",
        "password=None,token=token",
        'NAMES = ("password", "api_key", "token")',
        'os.environ.get("HF_TOKEN", "")',
        'setenv("HF_TOKEN", token)',
        "forward_pass = 2; bypass: yes; the second pass: all",
        'password = """"""',
    ],
)
def test_ordinary_text_and_code_stay(text: str) -> None:
    assert mask_secrets(text) == text


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        (["--token", CANARY, "run"], ["--token", MASK, "run"]),
        (["--hf-token", "-" + CANARY], ["--hf-token", MASK]),
        (["--password", "--nice"], ["--password", "--nice"]),
        ([f"--password={CANARY} {CANARY}"], [f"--password={MASK}"]),
        ([f"a.b.secret={CANARY}"], [f"a.b.secret={MASK}"]),
        (["--registry", f"postgresql://u:{CANARY}@h/d"], ["--registry", f"postgresql://u:{MASK}@h/d"]),
        ([f'headers={{"password": "x {CANARY}"}}'], [f'headers={{"password": "{MASK}"}}']),
        (["mask_token=[MASK]", "seeds=[0,1]"], ["mask_token=[MASK]", "seeds=[0,1]"]),
    ],
)
def test_words_of_a_command_are_masked(words: list[str], masked: list[str]) -> None:
    assert mask_words(words) == masked


@given(st.text(), st.sampled_from(["password", "HF_TOKEN", "api-key", "x.secret"]))
def test_a_value_of_a_secret_name_never_stays(value: str, name: str) -> None:
    (masked,) = mask_words([f"{name}={CANARY}{value}"])
    assert CANARY not in masked


def test_what_stands_around_a_secret_stays() -> None:
    assert mask_secrets('setenv("API_KEY", "a"); x = 1') == 'setenv("API_KEY", "***"); x = 1'
    assert mask_secrets('env["HF_TOKEN"] = b"a" + c') == 'env["HF_TOKEN"] = b"***" + c'
    assert mask_secrets('password="""a\n"b" c"""\nd') == 'password="""***"""\nd'
    assert mask_secrets("run 'PASSWORD=a,b;c' now") == "run 'PASSWORD=***' now"


@pytest.mark.parametrize("blanks", ["token" + " " * 200_000, "'token'" + " " * 200_000 + ",", "token=" + "'" * 200_000])
def test_one_secret_name_before_much_is_looked_at_in_bounded_time(blanks: str) -> None:
    begin = time.process_time()
    mask_secrets(blanks)
    assert time.process_time() - begin < 5.0


WORDS = ["a", "a.", "secret", "password", "x-", "eyJ", "://a", '"', "\\"]
PAIRS = ["token:", "Bearer ", 'password="""', "token=token,", "token =a,", "token  "]


@pytest.mark.parametrize("unit", [*WORDS, *PAIRS])
def test_long_text_is_masked_in_bounded_time(unit: str) -> None:
    begin = time.process_time()
    mask_secrets(unit * (64 * 1024 // len(unit)))
    assert time.process_time() - begin < 1.0
