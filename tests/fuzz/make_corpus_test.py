"""What make_corpus.py makes is what is checked in: whoever changes a format makes its inputs anew."""

import make_corpus


def test_the_seeds_are_those_of_the_script() -> None:
    for name, inputs in make_corpus.seeds().items():
        folder = make_corpus.CORPUS / name
        assert {path.name.removeprefix("seed-") for path in folder.glob("seed-*")} == set(inputs), name
        for label, data in inputs.items():
            assert (folder / f"seed-{label}").read_bytes() == data, (
                f"{name}/seed-{label}: run tests/fuzz/make_corpus.py"
            )
