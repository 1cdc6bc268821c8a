"""Metadata of code objects: kernels, their arguments and sizes. It is MessagePack in the object's note, and YAML in
assembly text.

Source: LLVM AMDGPUUsage, "Code Object Metadata". Of YAML, only what compilers print there is read: maps, lists, plain
scalars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding.target import Limits
from ringup.compiler.isa.common.program import Kernel
from ringup.errors import CompileError
from ringup.queues.amd.objects import hsa_metadata

# The version of the metadata of code object v5.
VERSION = [hsa_metadata.MAJOR, 2]
MAX_DEPTH = 16


def pack(document: Mapping[str, Any]) -> bytes:
    """Return a metadata document as the bytes of its note."""
    # Imported here, since assembly text is read and written without it.
    import msgpack

    return bytes(msgpack.packb(document))


def unpack(data: bytes, what: str) -> dict[str, Any]:
    """Return the document in a note of the object `what`. Raises `CompileError` for damage."""
    found = hsa_metadata.unpack(data, what)
    if not isinstance(found, dict):
        raise CompileError("metadata is not a map; build the object again")
    _check_plain(found, 0)
    return found


def _check_plain(value: Any, depth: int) -> None:
    """Raise a `CompileError` for values that metadata cannot have: keys other than text, byte strings, other kinds,
    maps nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise CompileError(f"metadata is nested more than {MAX_DEPTH} deep; build the object again")
    if isinstance(value, dict):
        strange = next((key for key in value if not isinstance(key, str)), None)
        if strange is not None:
            raise CompileError(f"metadata has the key {strange!r}, which is not text; build the object again")
    elif not isinstance(value, list):
        if not isinstance(value, str | int | float | None):
            raise CompileError(f"metadata holds {value!r:.80}, neither text nor number; build the object again")
        return
    for inner in value.values() if isinstance(value, dict) else value:
        _check_plain(inner, depth + 1)


def complete(
    document: Mapping[str, Any] | None, kernels: Sequence[Kernel], limits: Limits, wave_size: int
) -> dict[str, Any]:
    """Return metadata that names the target and describes every kernel. Facts that the document lacks come from the
    directives.
    """
    made = dict(document or {})
    described = {str(one.get(".name")): dict(one) for one in made.get("amdhsa.kernels", ()) if isinstance(one, dict)}
    for kernel in kernels:
        given = kernel.directives
        wave = 64 if limits.generation == 9 or not given.get("wavefront_size32", wave_size == 32) else 32
        defaults = {
            ".name": kernel.name, ".symbol": f"{kernel.name}.kd", ".kernarg_segment_size": given.get("kernarg_size", 0),
            ".kernarg_segment_align": 8, ".group_segment_fixed_size": given.get("group_segment_fixed_size", 0),
            ".private_segment_fixed_size": given.get("private_segment_fixed_size", 0), ".wavefront_size": wave,
            ".sgpr_count": given.get("next_free_sgpr", 0), ".vgpr_count": given.get("next_free_vgpr", 0),
            ".max_flat_workgroup_size": limits.max_group_size, ".args": [],
        }  # fmt: skip
        described[kernel.name] = defaults | described.get(kernel.name, {})
    made["amdhsa.kernels"] = list(described.values())
    made["amdhsa.version"] = made.get("amdhsa.version", VERSION)
    made["amdhsa.target"] = made.get("amdhsa.target", hsa_metadata.TRIPLE + limits.name)
    return made


def write_yaml(document: Any, indent: int = 0) -> list[str]:
    """Return a document as lines of YAML."""
    pad = " " * indent
    found: list[str] = []
    if isinstance(document, dict):
        for key, value in document.items():
            if isinstance(value, dict | list) and value:
                found.append(f"{pad}{_scalar(str(key))}:")
                found += write_yaml(value, indent + 2)
            else:
                found.append(f"{pad}{_scalar(str(key))}: {_scalar(value)}")
        return found
    for value in document:
        if isinstance(value, dict | list) and value:
            inner = write_yaml(value, indent + 2)
            inner[0] = f"{pad}- {inner[0].lstrip()}"
            found += inner
        else:
            found.append(f"{pad}- {_scalar(value)}")
    return found


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    text = str(value)
    plain = text and text.replace("_", "").replace(".", "").replace("-", "").isalnum() and text[0] not in "-0123456789"
    if plain and text not in ("true", "false", "null", "yes", "no"):
        return text
    return "'" + text.replace("'", "''") + "'"


def read_yaml(lines: Sequence[str]) -> dict[str, Any]:
    """Return the document of lines of YAML. Raises `CompileError` with the number of a line that it cannot read,
    counted from 1.
    """
    rows = []
    for number, line in enumerate(lines, 1):
        text = line.rstrip()
        if text.strip() in ("", "---", "..."):
            continue
        if "\t" in text[: len(text) - len(text.lstrip())]:
            raise CompileError(f"metadata, line {number}: a tab in the indentation")
        rows.append((len(text) - len(text.lstrip()), text.strip(), number))
    if not rows:
        return {}
    reader = _Yaml(rows)
    found = reader.block(rows[0][0], 0)
    if reader.at < len(rows):
        raise CompileError(f"metadata, line {rows[reader.at][2]}: indented less than its block")
    if not isinstance(found, dict):
        raise CompileError("the top level of metadata must be a map")
    return found


class _Yaml:
    def __init__(self, rows: list[tuple[int, str, int]]) -> None:
        self._rows, self.at = rows, 0

    def block(self, indent: int, depth: int) -> Any:
        """Read the map or list whose entries have this indentation."""
        if depth > MAX_DEPTH:
            raise CompileError(f"metadata, line {self._rows[self.at][2]}: nested too deeply")
        is_list = self._rows[self.at][1].startswith("- ") or self._rows[self.at][1] == "-"
        found_list: list[Any] = []
        found_map: dict[str, Any] = {}
        while self.at < len(self._rows) and self._rows[self.at][0] == indent:
            _, text, number = self._rows[self.at]
            if (text.startswith("- ") or text == "-") != is_list:
                break
            if is_list:
                rest = text[1:].lstrip()
                inner = indent + len(text) - len(rest)
                if not rest:
                    self.at += 1
                    found_list.append(self._nested(indent, depth))
                elif _split(rest):
                    self._rows[self.at] = (inner, rest, number)
                    found_list.append(self.block(inner, depth + 1))
                else:
                    self.at += 1
                    found_list.append(_value(rest, number))
                continue
            pair = _split(text)
            if pair is None:
                raise CompileError(f"metadata, line {number}: expected `key: value`, not {text[:40]!r}")
            key, rest = pair
            self.at += 1
            found_map[str(_value(key, number))] = _value(rest, number) if rest else self._nested(indent, depth)
        return found_list if is_list else found_map

    def _nested(self, indent: int, depth: int) -> Any:
        if self.at < len(self._rows):
            inner, text, _ = self._rows[self.at]
            if inner > indent or (inner == indent and text.startswith("- ")):
                return self.block(inner, depth + 1)
        return None


def _split(text: str) -> tuple[str, str] | None:
    """Split `key: value` at the colon outside quotes. Return None for a plain scalar."""
    if text[:1] in "'\"":
        end = text.find(text[0], 1)
        if end > 0 and text[end + 1 :].lstrip().startswith(":"):
            return text[: end + 1], text[end + 1 :].lstrip()[1:].strip()
        return None
    if text[:1] in "[{":
        return None
    key, colon, rest = text.partition(":")
    if not colon or (rest and not rest.startswith(" ")):
        return None
    return key.strip(), rest.strip()


def _value(text: str, number: int) -> Any:
    if text[:1] in "'\"" and len(text) > 1 and text[-1] == text[0]:
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1].replace('\\"', '"')
    if text[:1] == "[":
        if text[-1:] != "]":
            raise CompileError(f"metadata, line {number}: a list that is not closed")
        inner = text[1:-1].strip()
        return [_value(part.strip(), number) for part in inner.split(",")] if inner else []
    if text == "{}":
        return {}
    if text.startswith("!str "):
        return _value(text[5:].strip(), number) if text[5:].strip()[:1] in "'\"" else text[5:].strip()
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        return text
