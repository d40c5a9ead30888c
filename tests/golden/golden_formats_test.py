"""What make_formats.py makes is what is checked in: whoever changes a format makes its golden files anew."""

import make_formats


def test_the_golden_files_are_those_of_the_script() -> None:
    made = make_formats.files()
    assert {path.name for path in make_formats.FOLDER.iterdir()} == set(made)
    for name, data in made.items():
        assert (make_formats.FOLDER / name).read_bytes() == data, f"{name}: run tests/golden/make_formats.py"
