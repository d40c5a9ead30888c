"""What clang-tidy is given of a command line."""

from tidy import without_precompiled_headers


def test_gccs_precompiled_header_is_left_out_and_nothing_else() -> None:
    command = "g++ -O1 -Winvalid-pch -include /tree/pch.dir/cmake_pch.hxx -include own.h -o 'a b.o' -c a.cpp"
    left = ["g++", "-O1", "-include", "own.h", "-o", "a b.o", "-c", "a.cpp"]
    assert without_precompiled_headers(command) == left
