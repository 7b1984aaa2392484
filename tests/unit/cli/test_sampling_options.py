"""Options of sampling parameters: made from their rows, given on the command line or in parity.toml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from parity.cli.main import cli
from parity.cli.options import PlanOptions, plan_options
from parity.errors import ParityError
from parity.records.sampling import Effect, Form, Parameter, Sampling, asked, forget, register


def parsed(*arguments: str, toml: str = "", folder: Path | None = None) -> Sampling:
    """What a command that makes plans understands of its arguments."""
    found: list[Sampling] = []

    @click.command()
    @plan_options
    def command(options: PlanOptions) -> None:
        found.append(options.sampling)

    given = list(arguments)
    if folder is not None:
        (folder / "parity.toml").write_text(f"[plan]\n{toml}\n", encoding="utf-8")
        given += ["--config", str(folder / "parity.toml")]
    ran = CliRunner().invoke(command, given)
    if ran.exit_code:
        raise ParityError(ran.output)
    return found[0]


def test_without_options_everything_is_at_its_default() -> None:
    assert parsed() == Sampling()


def test_every_parameter_has_an_option_and_help() -> None:
    command = click.command()(plan_options(lambda **_: None))
    options = {parameter.name: parameter for parameter in command.params}
    for row in asked():
        option = options[row.name]
        assert isinstance(option, click.Option)
        assert option.help


def test_options_of_every_form(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}', encoding="utf-8")
    sampling = parsed(
        "--min-p", "0.1", "--min-tokens", "3", "--ignore-eos", "--no-skip-special-tokens",
        "--stop", "a,b", "--stop", "\n", "--stop-token-ids", "4,5", "--stop-token-ids", "6",
        "--logit-bias", "7=-1.5", "--logit-bias", "8=2", "--structured-outputs", f"json=@{schema}",
    )  # fmt: skip
    assert sampling == Sampling(
        min_p=0.1, min_tokens=3, ignore_eos=True, skip_special_tokens=False, stop=("a,b", "\n"),
        stop_token_ids=(4, 5, 6), logit_bias={7: -1.5, 8: 2.0}, structured_outputs={"json": {"type": "object"}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("regex=a=b", {"regex": "a=b"}), ("choice=yes,no", {"choice": ["yes", "no"]}),
        ('choice=["a,b", "c"]', {"choice": ["a,b", "c"]}), ('json={"type": "string"}', {"json": {"type": "string"}}),
        ('grammar=root ::= "a"', {"grammar": 'root ::= "a"'}),
    ],
)  # fmt: skip
def test_what_the_output_must_follow(text: str, value: dict[str, Any]) -> None:
    assert parsed("--structured-outputs", text).structured_outputs == value


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--logit-bias", "42"), "'42' is not ID=NUMBER"),
        (("--allowed-token-ids", "a"), "'a' is not a list of token ids"),
        (("--structured-outputs", "yaml=x"), "not one with 'yaml'"),
        (("--structured-outputs", "json={"), "is not json"),
        (("--structured-outputs", "json=@nowhere"), "cannot read nowhere"),
        (("--structured-outputs", "regex="), "has a regex that is"),
        (("--min-p", "2"), "not in the range 0<=x<=1"),
        (("--temperature", "nan"), "is not a number"),
    ],
)
def test_a_mistake_names_the_option(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ParityError) as caught:
        parsed(*arguments)
    assert arguments[0] in str(caught.value)
    assert problem in " ".join(str(caught.value).split())


def test_the_configuration_file_takes_them_in_the_forms_of_toml(tmp_path: Path) -> None:
    toml = """
    stop = ["a", "b"]
    bad_words = "x"
    allowed-token-ids = [1, 2]
    logit-bias = {3 = -1}
    structured-outputs = {choice = ["yes", "no"]}
    skip-special-tokens = false
    """
    assert parsed(toml=toml, folder=tmp_path) == Sampling(
        stop=("a", "b"), bad_words=("x",), allowed_token_ids=(1, 2), logit_bias={3: -1.0},
        structured_outputs={"choice": ["yes", "no"]}, skip_special_tokens=False,
    )  # fmt: skip


@pytest.fixture
def top_a() -> Iterator[Parameter]:
    yield register(Parameter(name="top_a", form=Form.NUMBER, default=0.0, effect=Effect.DRAWS, help="Top-a.", least=0))
    forget(Parameter(name="top_a", form=Form.NUMBER, default=0.0, effect=Effect.DRAWS))


def test_a_parameter_of_later_has_an_option_and_a_key(top_a: Parameter, tmp_path: Path) -> None:
    assert parsed("--top-a", "0.5").value("top_a") == 0.5
    assert parsed(toml="top_a = 0.25", folder=tmp_path).to_json()["top_a"] == 0.25
    with pytest.raises(ParityError, match="top-a"):
        parsed("--top-a", "-1")
    assert json.dumps(parsed().to_json()).count("top_a") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("watch", "--backends", "cpu", "--interval", "nan"),
        ("watch", "--backends", "cpu", "--interval", "inf"),
        ("watch", "--backends", "cpu", "--interval", "1e12"),
        ("reduce", "--minutes", "nan"),
        ("bisect", "settings", "--alpha", "nan"),
        ("kit", "kit.pyz", "--top-p", "nan"),
    ],
)
def test_what_is_no_number_is_refused_by_every_option_of_a_number(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert f"Invalid value for '{words[-2]}'" in done.stderr
