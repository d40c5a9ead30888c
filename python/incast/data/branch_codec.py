"""How the branches of a ROOT tree become bytes and back (docs/formats.md, "Fragments of import-root").

A column holds one item per event. Its type is made of numbers, lists, arrays of fixed length, strings and records, and
written as Awkward does: `float32`, `var * int32`, `3 * float32`, `var * var * uint8`, `string`,
`{"x": int8, "y": bool}`. An
item is encoded, little-endian and without padding, as
  number   its bytes; bool as one byte 0 or 1
  N * T    N items of T
  var * T  u32 count, then that many items of T
  string   u32 number of bytes, then these
  record   the items of its fields, in their order; the fields of a tuple are "0", "1", ...
Encoding and decoding work on whole columns; Python never loops over events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import awkward as ak
import numpy as np
import numpy.typing as npt

from incast.formats import Buffer, FormatError, scatter

Int64s = npt.NDArray[np.int64]

COUNT_BYTES: Final = 4
_NUMBERS: Final = {
    "bool": "?",
    **{f"int{8 * n}": f"<i{n}" for n in (1, 2, 4, 8)},
    **{f"uint{8 * n}": f"<u{n}" for n in (1, 2, 4, 8)},
    "float32": "<f4",
    "float64": "<f8",
}


class UnsupportedError(FormatError):
    """A branch whose type has no encoding."""


@dataclass(frozen=True)
class Number:
    """A fixed-width number."""

    name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """Little-endian."""
        return np.dtype(_NUMBERS[self.name])

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Regular:
    """A fixed number of items."""

    length: int
    content: ColumnType

    def __str__(self) -> str:
        return f"{self.length} * {self.content}"


@dataclass(frozen=True)
class Jagged:
    """Any number of items."""

    content: ColumnType

    def __str__(self) -> str:
        return f"var * {self.content}"


@dataclass(frozen=True)
class Text:
    """A string; encoded like a list of bytes."""

    def __str__(self) -> str:
        return "string"


@dataclass(frozen=True)
class Record:
    """Items side by side, each with a name."""

    fields: tuple[tuple[str, ColumnType], ...]

    def __str__(self) -> str:
        return "{" + ", ".join(f"{json.dumps(name)}: {content}" for name, content in self.fields) + "}"


ColumnType = Number | Regular | Jagged | Text | Record

_MOST_NESTED: Final = 50
_WORD: Final = re.compile(r'var \* |[1-9][0-9]{0,8} \* |[a-z]+[0-9]*|\{|\}|, |("(?:[^"\\]|\\.)*"): ')


class _TypeParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> ColumnType:
        found = self._type(0)
        if self._at != len(self._text):
            raise self._unknown()
        return found

    def _unknown(self) -> FormatError:
        shown = self._text if len(self._text) < 200 else self._text[:200] + "..."
        return FormatError(f"column type {shown!r}: unknown")

    def _next(self) -> re.Match[str]:
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise self._unknown()
        self._at = word.end()
        return word

    def _type(self, depth: int) -> ColumnType:
        if depth > _MOST_NESTED:
            raise FormatError(f"a column type is nested more than {_MOST_NESTED} deep")
        word = self._next()[0]
        if word in _NUMBERS:
            return Number(word)
        if word == "string":
            return Text()
        if word == "var * ":
            return Jagged(self._type(depth + 1))
        if word.endswith(" * "):
            return Regular(int(word.removesuffix(" * ")), self._type(depth + 1))
        if word == "{":
            return self._record(depth + 1)
        raise self._unknown()

    def _record(self, depth: int) -> Record:
        fields: dict[str, ColumnType] = {}
        while True:
            name = self._next()[1]
            if name is None:
                raise self._unknown()
            try:
                key = json.loads(name)
            except json.JSONDecodeError:
                raise self._unknown() from None
            if key in fields:
                raise FormatError(f"column type {self._text!r}: two fields {key!r}")
            fields[key] = self._type(depth)
            separator = self._next()[0]
            if separator == "}":
                return Record(tuple(fields.items()))
            if separator != ", ":
                raise self._unknown()


def parse_type(text: str) -> ColumnType:
    """The type that `str` of a type wrote."""
    return _TypeParser(text).whole()


def type_of(array: Any) -> ColumnType:
    """The column type of an Awkward array; UnsupportedError if it has none."""
    return _type_of_form(ak.to_layout(array).form)


def _type_of_form(form: Any) -> ColumnType:
    kind = type(form).__name__
    if kind in {"ListOffsetForm", "ListForm"}:
        if form.parameter("__array__") == "string":
            return Text()
        return Jagged(_type_of_form(form.content))
    if kind == "RegularForm" and form.size > 0:
        return Regular(form.size, _type_of_form(form.content))
    if kind == "NumpyForm" and form.primitive in _NUMBERS and 0 not in form.inner_shape:
        result: ColumnType = Number(form.primitive)
        for length in reversed(form.inner_shape):
            result = Regular(length, result)
        return result
    if kind == "RecordForm" and form.fields:
        return Record(tuple((name, _type_of_form(form.content(index))) for index, name in enumerate(form.fields)))
    raise UnsupportedError(f"type {form.type} has no encoding")


def smallest_bytes(column: ColumnType) -> int:
    """Bytes of the smallest item: the one that is all zeroes."""
    match column:
        case Number():
            return column.dtype.itemsize
        case Regular():
            return column.length * smallest_bytes(column.content)
        case Record():
            return sum(smallest_bytes(content) for _, content in column.fields)
        case _:
            return COUNT_BYTES


def fixed_bytes(column: ColumnType) -> int | None:
    """Bytes of every item, if they are all of one size."""
    match column:
        case Number():
            return column.dtype.itemsize
        case Regular():
            inner = fixed_bytes(column.content)
            return None if inner is None else column.length * inner
        case Record():
            total = 0
            for _, content in column.fields:
                size = fixed_bytes(content)
                if size is None:
                    return None
                total += size
            return total
        case _:
            return None


# ---- encoding: an encoded column is the size of each item and all items' bytes, one behind the other


def join(columns: Sequence[tuple[Int64s, Buffer]]) -> tuple[Int64s, Buffer]:
    """Puts the items of several encoded columns side by side, event by event."""
    sizes = np.asarray(np.sum([sizes for sizes, _ in columns], axis=0, dtype=np.int64))
    out = np.empty(int(sizes.sum()), dtype=np.uint8)
    starts = np.cumsum(sizes) - sizes
    for item_sizes, data in columns:
        scatter(out, starts, data, item_sizes)
        starts = starts + item_sizes
    return sizes, out


def encode(array: Any) -> tuple[Int64s, Buffer]:
    """The encoded column of an Awkward array."""
    return _encode(ak.to_layout(ak.to_packed(array)), type_of(array))


def _as_numbers(layout: Any, column: Number) -> npt.NDArray[Any]:
    data = np.ascontiguousarray(np.asarray(layout.data), dtype=column.dtype)
    # Files hold bools of any value but 0, and numpy keeps their bytes.
    return data.view(np.uint8) != 0 if column.dtype.kind == "b" else data


def _encode(layout: Any, column: ColumnType) -> tuple[Int64s, Buffer]:
    match column:
        case Number():
            data = _as_numbers(layout, column)
            return np.full(len(data), data.itemsize, dtype=np.int64), data.view(np.uint8)
        case Regular():
            regular = layout.to_RegularArray() if hasattr(layout, "data") else layout
            sizes, data = _encode(regular.content, column.content)
            return sizes.reshape(-1, column.length).sum(axis=1), data
        case Record():
            return join([_encode(layout.content(index), each) for index, (_, each) in enumerate(column.fields)])
        case Jagged():
            item_sizes, data = _encode(layout.content, column.content)
        case Text():
            item_sizes, data = _encode(layout.content, Number("uint8"))
    offsets = np.asarray(layout.offsets, dtype=np.int64)
    counts = np.diff(offsets)
    if len(counts) and int(counts.max()) >= 1 << 32:
        raise UnsupportedError(f"a list of {int(counts.max())} items, expected less than 2^32")
    ends = np.concatenate([[0], np.cumsum(item_sizes)])
    list_sizes = ends[offsets[1:]] - ends[offsets[:-1]]
    count_sizes = np.full(len(counts), COUNT_BYTES, dtype=np.int64)
    return join([(count_sizes, counts.astype("<u4").view(np.uint8)), (list_sizes, data)])


# ---- decoding: every item knows where it starts and where the fragment that holds it ends


def _require(places: Int64s, sizes: Int64s | int, ends: Int64s) -> None:
    if (places + sizes > ends).any():
        raise FormatError("a fragment ends inside of an item")


def _numbers(data: Buffer, places: Int64s, ends: Int64s, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    _require(places, dtype.itemsize, ends)
    raw = np.ascontiguousarray(data[places[:, np.newaxis] + np.arange(dtype.itemsize)])
    if dtype.kind == "b" and (raw > 1).any():
        raise FormatError(f"a bool is {int(raw.max())}, expected 0 or 1")
    return raw.view(dtype).reshape(-1)


def _counts(data: Buffer, places: Int64s, ends: Int64s) -> Int64s:
    return _numbers(data, places, ends, np.dtype("<u4")).astype(np.int64)


def _behind(column: ColumnType, data: Buffer, places: Int64s, ends: Int64s) -> Int64s:
    """Where the items end that start at `places`."""
    size = fixed_bytes(column)
    if size is not None:
        _require(places, size, ends)
        return places + size
    if isinstance(column, Regular):
        for _ in range(column.length):
            places = _behind(column.content, data, places, ends)
        return places
    if isinstance(column, Record):
        for _, each in column.fields:
            places = _behind(each, data, places, ends)
        return places
    content = column.content if isinstance(column, Jagged) else Number("uint8")
    counts = _counts(data, places, ends)
    return _items(content, data, places + COUNT_BYTES, counts, ends)[1]


def _items(column: ColumnType, data: Buffer, places: Int64s, counts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """The places of counts[k] items each from places[k] on, in order, and where each run of items ends."""
    _require(places, counts * smallest_bytes(column), ends)
    size = fixed_bytes(column)
    firsts = np.cumsum(counts) - counts
    if size is not None:
        within = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
        return np.repeat(places, counts) + size * within, places + size * counts
    found = np.empty(int(counts.sum()), dtype=np.int64)
    places = places.copy()
    # An item's place depends on the sizes of those before it: one step per item of the longest list, for all events
    # at once.
    for k in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > k)
        found[firsts[rows] + k] = places[rows]
        places[rows] = _behind(column, data, places[rows], ends[rows])
    return found, places


def _decode(column: ColumnType, data: Buffer, places: Int64s, ends: Int64s) -> tuple[Any, Int64s]:
    """The decoded items as an Awkward layout, and where each of them ends."""
    if isinstance(column, Number):
        numbers = _numbers(data, places, ends, column.dtype)
        return ak.contents.NumpyArray(numbers), places + column.dtype.itemsize
    if isinstance(column, Regular):
        counts = np.full(len(places), column.length, dtype=np.int64)
        inner, behind = _items(column.content, data, places, counts, ends)
        content, _ = _decode(column.content, data, inner, np.repeat(ends, counts))
        return ak.contents.RegularArray(content, column.length, len(places)), behind
    if isinstance(column, Record):
        contents = []
        behind = places
        for _, each in column.fields:
            content, behind = _decode(each, data, behind, ends)
            contents.append(content)
        return ak.contents.RecordArray(contents, [name for name, _ in column.fields], len(places)), behind
    counts = _counts(data, places, ends)
    offsets = ak.index.Index64(np.concatenate([[0], np.cumsum(counts)]))
    content_type = column.content if isinstance(column, Jagged) else Number("uint8")
    inner, behind = _items(content_type, data, places + COUNT_BYTES, counts, ends)
    content, _ = _decode(content_type, data, inner, np.repeat(ends, counts))
    if isinstance(column, Text):
        characters = ak.contents.NumpyArray(content.data, parameters={"__array__": "char"})
        return ak.contents.ListOffsetArray(offsets, characters, parameters={"__array__": "string"}), behind
    return ak.contents.ListOffsetArray(offsets, content), behind


def decode(columns: Sequence[ColumnType], sizes: Int64s, payload: Buffer) -> list[Any]:
    """The columns, as Awkward arrays, of fragments given by their sizes and their bytes one behind the other.

    An empty fragment stands for one that is all zeroes. A FormatError tells of fragments that do not fit the columns.
    """
    # Empty fragments read from a block of zeroes behind the payload.
    zeroes = sum(smallest_bytes(column) for column in columns)
    data = np.concatenate([payload, np.zeros(zeroes, dtype=np.uint8)])
    ends = np.cumsum(sizes)
    places = ends - sizes
    empty = sizes == 0
    places[empty] = len(payload)
    ends[empty] = len(data)
    arrays = []
    for column in columns:
        layout, places = _decode(column, data, places, ends)
        arrays.append(ak.Array(layout))
    surplus = np.flatnonzero(places != ends)
    if len(surplus):
        first = int(surplus[0])
        raise FormatError(f"fragment {first} has {int(ends[first] - places[first])} bytes more than its branches")
    return arrays


def suppress_zeroes(sizes: Int64s, data: Buffer) -> tuple[Int64s, Buffer]:
    """Leaves out, as empty, the fragments that are all zeroes: no objects, every number 0."""
    if not len(sizes):
        return sizes, data
    ends = np.concatenate([[0], np.cumsum(data != 0)])
    behind = np.cumsum(sizes)
    zero = ends[behind] == ends[behind - sizes]
    kept = np.repeat(~zero, sizes)
    return np.where(zero, 0, sizes), data[kept]


def first_difference(expected: Any, actual: Any) -> int | None:
    """The first event whose items differ in type, count or any bit (so a NaN equals itself); None if there is none."""
    if len(expected) != len(actual):
        return min(len(expected), len(actual))
    return _first_difference(
        ak.to_layout(ak.to_packed(expected)), ak.to_layout(ak.to_packed(actual)), np.arange(len(expected))
    )


def _first_difference(expected: Any, actual: Any, owners: Int64s) -> int | None:
    if _type_of_form(expected.form) != _type_of_form(actual.form):
        return 0
    for layout in (expected, actual):
        if hasattr(layout, "data") and layout.inner_shape:
            return _first_difference(_regular(expected), _regular(actual), owners)
    if isinstance(expected, ak.contents.RecordArray):
        firsts = (
            _first_difference(expected.content(index), actual.content(index), owners)
            for index in range(len(expected.fields))
        )
        return min((first for first in firsts if first is not None), default=None)
    if hasattr(expected, "data"):
        number = _type_of_form(expected.form)
        assert isinstance(number, Number)
        pair = [_as_numbers(layout, number).view(f"u{number.dtype.itemsize}") for layout in (expected, actual)]
        different = pair[0] != pair[1]
    elif hasattr(expected, "offsets"):
        counts: list[Int64s] = [np.diff(np.asarray(layout.offsets)) for layout in (expected, actual)]
        different = counts[0] != counts[1]
        if not different.any():
            return _first_difference(expected.content, actual.content, np.repeat(owners, counts[0]))
    else:
        return _first_difference(expected.content, actual.content, np.repeat(owners, expected.size))
    return int(owners[np.flatnonzero(different)[0]]) if different.any() else None


def _regular(layout: Any) -> Any:
    return layout.to_RegularArray() if hasattr(layout, "data") else layout
