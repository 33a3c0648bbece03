# SPDX-License-Identifier: Apache-2.0
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from hetero_spec.models.gguf_reader import GGUFError, GGUFFile, SplicedFile
from tests.models import tiny_gguf


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    tiny_gguf.write_llama(path)
    return path


def test_metadata_and_tensors_equal_those_of_the_gguf_package(path: Path) -> None:
    theirs = gguf.GGUFReader(path)
    with GGUFFile(path) as ours:
        names = [tensor.name for tensor in theirs.tensors]
        assert list(ours.tensors) == names and len(names) == 2 + 9 * tiny_gguf.LAYERS
        for tensor in theirs.tensors:
            info = ours.tensors[tensor.name]
            assert (info.shape, info.ggml_type, info.offset, info.num_bytes) == (
                tuple(tensor.shape[::-1].tolist()),
                int(tensor.tensor_type),
                tensor.data_offset,
                tensor.n_bytes,
            )
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            assert ours.tensor(tensor.name).dtype == np.float32
            np.testing.assert_array_equal(ours.tensor(tensor.name), values)
        for key, field in theirs.fields.items():
            if key.startswith("GGUF."):
                continue
            expected = field.contents()
            actual = ours.metadata[key]
            if isinstance(actual, np.ndarray):
                actual = actual.tolist()
            elif isinstance(actual, list):
                actual = [text.decode() for text in actual]
            assert actual == expected, key


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "F16", "F32"])
def test_tensor_equals_the_written_one_within_a_quantization_step(tmp_path: Path, kind: str) -> None:
    quantization = gguf.GGMLQuantizationType[kind]
    path = tmp_path / "model.gguf"
    tiny_gguf.write_llama(path, quantization=quantization)
    expected = np.random.default_rng(0).standard_normal((262, tiny_gguf.HIDDEN)).astype(np.float32)
    # Half a step: a block's largest magnitude (under 4 here) over 8 for 4 bits, over 16 for 5, over 127 for 8.
    tolerance = {"Q4_0": 0.52, "Q4_1": 0.27, "Q5_0": 0.27, "Q8_0": 0.017, "F16": 0.002, "F32": 0.0}[kind]
    with GGUFFile(path) as file:
        values = file.tensor("token_embd.weight")
    assert values.shape == expected.shape
    assert np.abs(values - expected).max() <= tolerance


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    path = tmp_path / "values.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4000000000)
    writer.add_int32("i32", -2000000000)
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -(2**62))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "héllo")
    writer.add_array("floats", [0.5, 1.5])
    writer.add_array("words", ["a", "", "日本"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile(path) as file:
        values = file.metadata
        assert [values[key] for key in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")] == [
            200, -100, 60000, -30000, 4000000000, -2000000000, 2**63, -(2**62),
        ]  # fmt: skip
        assert (values["f32"], values["f64"], values["yes"], values["text"]) == (0.5, 0.1, True, "héllo")
        assert values["floats"].tolist() == [0.5, 1.5]
        assert file.strings("words") == [b"a", b"", "日本".encode()]
        with pytest.raises(GGUFError, match="text must be an array of strings, got str"):
            file.strings("text")


def test_parts_read_as_one_file(tmp_path: Path, path: Path) -> None:
    data = path.read_bytes()
    with GGUFFile(path) as whole:
        embedding = whole.tensors["token_embd.weight"]
        # One cut inside a tensor, one inside the next, one at the very end (an empty part).
        cuts = [0, embedding.offset + 100, embedding.offset + embedding.num_bytes + 7, len(data), len(data)]
        parts = [tmp_path / f"part{number}" for number in range(len(cuts) - 1)]
        for part, start, stop in zip(parts, cuts, cuts[1:], strict=False):
            part.write_bytes(data[start:stop])
        with GGUFFile(parts) as spliced:
            assert spliced.metadata.keys() == whole.metadata.keys()
            for name in whole.tensors:
                np.testing.assert_array_equal(spliced.tensor(name), whole.tensor(name))
        with GGUFFile(parts[0], header_only=True) as header:
            assert header.strings("tokenizer.ggml.tokens") == whole.strings("tokenizer.ggml.tokens")
        with pytest.raises(GGUFError, match="cut short"):
            GGUFFile(parts[0])


def test_view_copies_only_across_parts(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123")
    (tmp_path / "b").write_bytes(b"4567")
    spliced = SplicedFile([tmp_path / "a", tmp_path / "b"])
    assert bytes(spliced.view(2, 6)) == b"2345" and isinstance(spliced.view(2, 6), bytes)
    assert bytes(spliced.view(5, 8)) == b"567" and isinstance(spliced.view(5, 8), memoryview)


def test_file_cut_anywhere_is_refused(tmp_path: Path, path: Path) -> None:
    data = path.read_bytes()
    with GGUFFile(path) as whole:
        # The last tensor may be followed by padding, without which the file is still whole.
        end = max(info.offset + info.num_bytes for info in whole.tensors.values())
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, 400, 7), *range(400, end, 997), end - 1]:
        cut.write_bytes(data[:length])
        with pytest.raises(GGUFError, match="cut"):
            GGUFFile(cut)
    cut.write_bytes(data[:end])
    GGUFFile(cut).close()


@pytest.mark.parametrize("key", ["words", "numbers"])
def test_array_that_is_cut_at_the_end_of_the_file_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "array.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array(key, ["a", "bcd"] if key == "words" else [1, 2])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    GGUFFile(path, header_only=True).close()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(GGUFError, match="cut short"):
        GGUFFile(path, header_only=True)


def test_damaged_header_never_gives_another_error(tmp_path: Path, path: Path) -> None:
    data = path.read_bytes()
    with GGUFFile(path) as whole:
        header_bytes = min(info.offset for info in whole.tensors.values())
    damaged = tmp_path / "damaged.gguf"
    generator = np.random.default_rng(0)
    num_refused = 0
    for _ in range(300):
        changed = bytearray(data)
        for position in generator.integers(0, header_bytes, 4):
            changed[position] = generator.integers(256)
        damaged.write_bytes(changed)
        try:
            GGUFFile(damaged).close()
        except GGUFError:
            num_refused += 1
    assert num_refused > 100


@pytest.mark.parametrize(
    ("position", "form", "value", "message"),
    [
        (0, "<4s", b"GGML", "not a GGUF file"),
        (4, "<I", 1, "version must be one of .2, 3., got 1"),
        (8, "<Q", 2**60, "cut short"),
        (16, "<Q", 2**60, "cut short"),
        (24, "<Q", 2**63, "cut short"),
    ],
)
def test_header_that_lies_is_refused(path: Path, position: int, form: str, value: object, message: str) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, position, value)
    path.write_bytes(data)
    with pytest.raises(GGUFError, match=message):
        GGUFFile(path)


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        GGUFFile(tmp_path / "none.gguf")
