"""What a reader that knows the published layouts alone finds in our files, field by field.

INCAST_PUBLISHED_SETS says how many random sets of events are built and read.
"""

import os
import random
import sys
from pathlib import Path

import make_formats
import pytest
from make_corpus import ROOT
from published import Fragment, Mfp, read_mdf, read_meps, read_mfps

sys.path.insert(0, str(ROOT / "python"))
from incast import formats
from incast.data.mep_export import export_mdf

SETS = int(os.environ.get("INCAST_PUBLISHED_SETS", "20"))
GOLDEN = make_formats.FOLDER


def ours(mfp: formats.Mfp) -> Mfp:
    """The same fields, as the package reads them."""
    fragments = [
        Fragment(mfp.first_event + k, int(mfp.types[k]), mfp.fragment(k).tobytes()) for k in range(mfp.n_fragments)
    ]
    return Mfp(mfp.source, mfp.first_event, mfp.align_log2, mfp.fragment_version, mfp.wide, fragments)


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_golden_files_are_read_alike(path: Path) -> None:
    data = path.read_bytes()
    if path.suffix == ".mep":
        found = read_meps(data)
        assert found == [[ours(mfp) for mfp in mep.mfps] for _, mep in formats.read_meps(path)]
        assert found
    elif path.suffix == ".mfp":
        assert read_mfps(data) == [ours(mfp) for mfp in formats.read_mfps(path)]
        assert len(read_mfps(data)) == 2
    else:
        assert read_mdf(data)


def test_corpora_of_the_fuzzers_are_read_alike() -> None:
    corpus = ROOT / "tests" / "fuzz" / "corpus"
    for path in (corpus / "fuzz_mfp").glob("seed-*"):
        assert read_mfps(path.read_bytes()) == [ours(mfp) for mfp in formats.read_mfps(path)], path.name
    for path in (corpus / "fuzz_mep").glob("seed-*"):
        mep = formats.parse_mep(path.read_bytes())
        assert read_meps(path.read_bytes()) == [[ours(mfp) for mfp in mep.mfps]], path.name


@pytest.mark.parametrize("seed", range(SETS))
def test_random_sets_are_read_as_they_were_built(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    n, first = rng.randint(1, 9), rng.choice([0, rng.getrandbits(40), 2**64 - 40])
    built = []
    for source in sorted(rng.sample(range(65536), rng.randint(1, 6))):
        bodies = [rng.randbytes(rng.choice([0, 1, 4, rng.randint(0, 300)])) for _ in range(n)]
        kinds = [rng.randrange(0xF0) for _ in range(n)]
        fragments = [Fragment(first + k, kinds[k], bodies[k]) for k in range(n)]
        built.append(Mfp(source, first, rng.randrange(13), rng.randrange(256), False, fragments))
    packets = [
        formats.encode_mfp(
            mfp.source,
            first,
            [len(one.data) for one in mfp.fragments],
            b"".join(one.data for one in mfp.fragments),
            types=[one.kind for one in mfp.fragments],
            align_log2=mfp.align,
            fragment_version=mfp.version,
        )
        for mfp in built
    ]
    assert read_mfps(b"".join(packets)) == built
    path = tmp_path / "built.mep"
    path.write_bytes(formats.encode_mep(packets))
    assert read_meps(path.read_bytes()) == [built]
    export_mdf([path], tmp_path / "built.mdf")
    records = read_mdf((tmp_path / "built.mdf").read_bytes())
    assert [record.banks for record in records] == [
        [(mfp.fragments[k].kind, mfp.version, mfp.source, mfp.fragments[k].data) for mfp in built] for k in range(n)
    ]
    assert all(record.mask == (2**32 - 1,) * 4 for record in records)


def test_mdf_holds_the_events_of_the_meps() -> None:
    records = read_mdf((GOLDEN / "complete.mdf").read_bytes())
    events = [
        event
        for mep in read_meps((GOLDEN / "complete.mep").read_bytes())
        for event in zip(*(m.fragments for m in mep), strict=True)
    ]
    assert [[bank.data for bank in record.banks] for record in records] == [
        [one.data for one in event] for event in events
    ]
    assert [record.orbit * 3564 + record.bunch for record in records] == [event[0].event for event in events]
