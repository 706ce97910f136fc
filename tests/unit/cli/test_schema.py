"""The published JSON Schemas: complete, stable, and true of what the contracts accept and refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from retold.cli.schema import DIALECT, PUBLISHED, schemas
from tests.unit.cli.conftest import Retold
from tests.unit.cli.examples import EXAMPLES

Json = Any


def complaints(schema: Json, value: Json, root: Json, where: str = "$") -> list[str]:
    """What `schema` has against `value`: the part of JSON Schema that the contracts use, and no silent rest."""
    schema = dict(schema)
    for ignored in ("$schema", "$id", "$defs", "version", "title", "description", "default", "format", "discriminator"):
        schema.pop(ignored, None)
    found: list[str] = []
    if (ref := schema.pop("$ref", None)) is not None:
        found += complaints(root["$defs"][ref.removeprefix("#/$defs/")], value, root, where)
    for one_of in ("anyOf", "oneOf"):
        if (choices := schema.pop(one_of, None)) is not None:
            matching = [choice for choice in choices if not complaints(choice, value, root, where)]
            if not matching or (one_of == "oneOf" and len(matching) != 1):
                found.append(f"{where}: matches {len(matching)} of {len(choices)} in {one_of}")
    if (type_ := schema.pop("type", None)) is not None and not _is(value, type_):
        return [*found, f"{where}: is no {type_}"]
    for keyword, argument in schema.items():
        found += _keyword(keyword, argument, value, schema, root, where)
    return found


def _keyword(keyword: str, argument: Json, value: Json, schema: Json, root: Json, where: str) -> list[str]:
    match keyword:
        case "properties":
            here = [(argument[name], value[name], f"{where}.{name}") for name in value if name in argument]
            return [line for part, inner, path in here for line in complaints(part, inner, root, path)]
        case "required":
            return [f"{where}: lacks {name}" for name in argument if name not in value]
        case "additionalProperties" if argument is False:
            return [f"{where}: has {name}" for name in value if name not in schema.get("properties", {})]
        case "additionalProperties":
            rest = [name for name in value if name not in schema.get("properties", {})]
            part = {} if argument is True else argument
            return [line for name in rest for line in complaints(part, value[name], root, f"{where}.{name}")]
        case "items":
            return [line for i, item in enumerate(value) for line in complaints(argument, item, root, f"{where}[{i}]")]
        case "enum":
            holds = value in argument
        case "const":
            holds = value == argument and type(value) is type(argument)
        case "minLength" | "minItems":
            holds = len(value) >= argument
        case "maxLength" | "maxItems":
            holds = len(value) <= argument
        case "minimum":
            holds = value >= argument
        case "maximum":
            holds = value <= argument
        case "pattern":
            holds = re.search(argument, value) is not None
        case _:
            raise AssertionError(f"the contracts use a keyword this reader does not know: {keyword}")
    return [] if holds else [f"{where}: breaks {keyword} {argument}"]


def _is(value: Json, type_: str) -> bool:
    kinds: dict[str, type] = {"string": str, "object": dict, "array": list, "null": type(None), "boolean": bool}
    if type_ in ("integer", "number"):
        return isinstance(value, int if type_ == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, kinds[type_])


@pytest.mark.parametrize("model", PUBLISHED, ids=lambda model: model.__name__)
def test_a_schema_accepts_what_its_contract_writes_and_treats_an_unknown_field_as_its_contract_does(
    model: type[BaseModel],
) -> None:
    schema = schemas()[model.__name__]
    example = EXAMPLES[model]
    assert isinstance(example, model)
    written = TypeAdapter(model).dump_python(example, mode="json")

    assert complaints(schema, written, schema) == []
    ignored = model.model_config.get("extra") == "ignore"
    assert complaints(schema, {**written, "surprise": 1}, schema) == ([] if ignored else ["$: has surprise"])
    assert schema["$schema"] == DIALECT
    assert schema["$id"] == f"urn:retold:contract:{model.__name__}:1" and schema["version"] == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"text": "x" * 32_001}, "$.text: breaks maxLength 32000"),
        ({"principal": {"tenant": "harbour"}}, "$.principal: lacks user"),
        ({"options": {"latency_budget_ms": 1.5}}, "$.options.latency_budget_ms: matches 0 of 3 in anyOf"),
        ({"options": {"durability": "for ever"}}, "$.options.durability: breaks enum ['auto', 'turn', 'stage']"),
        ({"schema_version": 2}, "$.schema_version: breaks const 1"),
    ],
)
def test_a_host_in_another_language_finds_its_mistake_by_the_schema_alone(
    change: dict[str, Json], complaint: str
) -> None:
    schema = schemas()["TurnRequest"]
    request = {"principal": {"tenant": "harbour", "user": "tove"}, "session_id": "s", "turn_id": "1", "text": "Hello"}

    assert complaints(schema, request, schema) == []
    assert complaints(schema, {**request, **change}, schema) == [complaint]


def test_stdout_and_files_hold_the_same_whenever_they_are_written(retold: Retold, tmp_path: Path) -> None:
    printed = retold("schema")
    assert (printed.code, printed.err) == (0, "")
    assert retold("schema").out == printed.out

    assert retold("schema", "--out", str(tmp_path / "schemas")).code == 0
    files = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "schemas").glob("*.json")}
    assert files == json.loads(printed.out)
    assert files.keys() == {model.__name__ for model in PUBLISHED}
