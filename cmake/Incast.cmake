# The house's CMake: one target and one include root per folder.
#
#   incast_library(<folder> [COLD] [SOURCES ...] [DEPENDS ...])
#                                                            src/<folder> -> target incast_<folder> ('/' becomes '_')
#   incast_transport(<name> [MODULE <source>] [SOURCES ...] [DEPENDS ...])
#                                                            src/transport/<name>: a library, and with MODULE a shared
#                                                            object beside it, loaded when it is first used (module.h)
#   incast_executable(<name> [COLD] SOURCES ... [DEPENDS ...])
#                                                            -> <build>/bin/<name>
#   incast_test(<name> SOURCES ... [DEPENDS ...] [LABELS ...] [SHARDS n] [FILTER pattern]
#               [SECONDS n])
#                                                            GoogleTest program -> <build>/test-bin/<name>
#   incast_bench(<name> SOURCES ... [DEPENDS ...])           google-benchmark program -> <build>/bench-bin/<name>
#   incast_fuzzer(<name> SOURCES ... [DEPENDS ...])          libFuzzer target, and a test that replays its corpus
#
# DEPENDS names folders (base, wire, transport/tcp, contract) or real targets (anything with "::").
# COLD: holds no hot path and is expensive to optimise: -O1 in a release build, which takes four fifths of the time, and
#   none in a debug build or under a sanitizer, in half the time.
# A target sees the headers of the folders it depends on, and no others: its include root is a folder of symbolic links
# in the build tree, so an include that the architecture forbids does not build.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()

# ccache keeps nothing that was compiled with precompiled headers.
find_program(INCAST_CCACHE ccache)
if(INCAST_CCACHE AND NOT INCAST_PCH AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${INCAST_CCACHE}")
endif()

# No -march: a binary built here runs on every machine of the architecture; faster paths are chosen at run time.
# No fused multiply-add contraction: the same seed must give the same bits whatever the compiler.
# Frame pointers stay, so that profiles of a release build show the callers.
set(INCAST_COMPILE_OPTIONS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -ffp-contract=off
                           -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc 12 sees overlaps in std::string concatenation that are not there (GCC bug 105651).
    list(APPEND INCAST_COMPILE_OPTIONS -Wno-restrict)
endif()
if(INCAST_UNITY)
    # What another file of the library calls so is not shadowed but elsewhere.
    list(APPEND INCAST_COMPILE_OPTIONS -Wno-shadow)
endif()
set(INCAST_LINK_OPTIONS "")
if(INCAST_SANITIZE)
    list(APPEND INCAST_COMPILE_OPTIONS "-fsanitize=${INCAST_SANITIZE}" -fno-sanitize-recover=all)
    list(APPEND INCAST_LINK_OPTIONS "-fsanitize=${INCAST_SANITIZE}")
    if(INCAST_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # gcc warns that thread fences are not modelled; code that relies on one alone shows up as a report instead.
        list(APPEND INCAST_COMPILE_OPTIONS -Wno-tsan)
    endif()
endif()
if(INCAST_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "INCAST_FUZZ=ON needs clang (libFuzzer): configure with the preset 'fuzz'")
    endif()
    list(APPEND INCAST_COMPILE_OPTIONS -fsanitize=fuzzer-no-link)
endif()

# isal::isal, which has no CMake package of its own in Debian 12.
function(incast_find_isal)
    find_path(ISAL_INCLUDE isa-l/crc.h REQUIRED)
    find_library(ISAL_LIBRARY isal REQUIRED)
    add_library(isal::isal UNKNOWN IMPORTED GLOBAL)
    set_target_properties(isal::isal PROPERTIES IMPORTED_LOCATION "${ISAL_LIBRARY}"
                                                INTERFACE_INCLUDE_DIRECTORIES "${ISAL_INCLUDE}")
endfunction()

# C++ libraries are compiled or linked in, so that older and newer systems run what this one builds. libgcc stays a
# shared library, of which a process must have one. What a library takes in is not seen outside of it.
function(incast_make_portable)
    add_compile_definitions(FMT_HEADER_ONLY=1)
    if(TARGET spdlog::spdlog)
        set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL)
    endif()
    set_target_properties(tomlplusplus::tomlplusplus PROPERTIES INTERFACE_COMPILE_OPTIONS "")
    add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
    add_library(incast_older_glibc STATIC "${PROJECT_SOURCE_DIR}/cmake/older_glibc.cpp")
    # The C++ library comes last, and asks for it then.
    add_link_options(-static-libstdc++ -Wl,--as-needed -Wl,--exclude-libs,libstdc++.a -Wl,--undefined=arc4random)
    link_libraries(incast_older_glibc)
endfunction()

function(incast_find_test_packages)
    set(tests OFF)
    if(INCAST_TESTS STREQUAL "AUTO")
        find_package(GTest QUIET)
        if(TARGET GTest::gtest_main AND TARGET GTest::gmock)
            set(tests ON)
        endif()
    elseif(INCAST_TESTS)
        find_package(GTest REQUIRED)
        set(tests ON)
    endif()
    set_property(GLOBAL PROPERTY INCAST_TESTS_ENABLED ${tests})
    if(INCAST_BENCH)
        find_package(benchmark REQUIRED)
    endif()
endfunction()

# "transport/tcp" -> "incast_transport_tcp"; a name with "::" is taken as it is.
function(incast_target_of name out)
    if(name MATCHES "::")
        set(${out} "${name}" PARENT_SCOPE)
    else()
        string(REPLACE "/" "_" target "incast_${name}")
        set(${out} "${target}" PARENT_SCOPE)
    endif()
endfunction()

function(incast_link target scope)
    foreach(name IN LISTS ARGN)
        incast_target_of("${name}" dependency)
        target_link_libraries(${target} ${scope} ${dependency})
        set_property(GLOBAL APPEND PROPERTY INCAST_DEPENDENCIES "${target}|${dependency}")
    endforeach()
endfunction()

# A dependency on a folder that defines no target would otherwise surface as "cannot find -lincast_..." at link time.
function(incast_check_dependencies)
    get_property(edges GLOBAL PROPERTY INCAST_DEPENDENCIES)
    foreach(edge IN LISTS edges)
        string(REPLACE "|" ";" pair "${edge}")
        list(GET pair 0 target)
        list(GET pair 1 dependency)
        if(NOT TARGET ${dependency})
            message(FATAL_ERROR "${target} depends on ${dependency}, which no folder defines")
        endif()
    endforeach()
endfunction()

function(incast_common_options target)
    target_compile_options(${target} PRIVATE ${INCAST_COMPILE_OPTIONS})
    target_link_options(${target} PRIVATE ${INCAST_LINK_OPTIONS})
endfunction()

# With INCAST_PCH=ON the headers below are parsed once per kind of target instead of once per source: 40 % less work for
# clang. Off by default, so that a source which does not include what it uses does not build. The kinds differ in
# compiler options: `library`, `cold` (see incast_library) and `test`. With gcc only tests: it warns, falsely, of what
# is inlined from a precompiled standard library as if it were ours.
set(INCAST_PCH_HEADERS <algorithm> <array> <atomic> <bit> <charconv> <chrono> <filesystem> <functional> <map> <memory>
                       <mutex> <optional> <span> <string> <thread> <variant> <vector>)
set(INCAST_PCH_HEADERS_cold <fmt/format.h> <nlohmann/json.hpp>)
set(INCAST_PCH_LIBRARIES_cold fmt::fmt nlohmann_json::nlohmann_json)
set(INCAST_PCH_HEADERS_test <gmock/gmock.h> <gtest/gtest.h>)
set(INCAST_PCH_LIBRARIES_test GTest::gmock GTest::gtest)

function(incast_precompiled target kind)
    if(NOT INCAST_PCH OR (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT kind STREQUAL "test"))
        return()
    endif()
    set(source incast_pch_${kind})
    if(NOT TARGET ${source})
        set(empty "${PROJECT_BINARY_DIR}/pch/${kind}.cpp")
        file(CONFIGURE OUTPUT "${empty}" CONTENT "")
        add_library(${source} OBJECT "${empty}")
        incast_common_options(${source})
        incast_options_of(${kind} ${source})
        target_link_libraries(${source} PRIVATE ${INCAST_PCH_LIBRARIES_${kind}})
        target_precompile_headers(${source} PRIVATE ${INCAST_PCH_HEADERS} ${INCAST_PCH_HEADERS_${kind}})
        if(kind STREQUAL "test")
            # They are programs, and compiled as such.
            set_target_properties(${source} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
            target_compile_options(${source} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})
        endif()
    endif()
    target_precompile_headers(${target} REUSE_FROM ${source})
endfunction()

# What is tested is optimised; the tests themselves are built in half the time without.
function(incast_options_of kind target)
    if(kind STREQUAL "test")
        target_compile_options(${target} PRIVATE $<IF:$<CONFIG:Release>,-O1,-O0>)
    elseif(kind STREQUAL "cold")
        target_compile_options(${target} PRIVATE $<IF:$<CONFIG:Release>,-O1,-O0>)
    endif()
endfunction()

# Makes <build>/roots/<target>/<folder>. A folder without targets below it is one link; a folder that holds further
# targets (transport, sim) is a real folder of links to its own headers, so that it does not open those below it.
function(incast_make_root target folder source_dir out)
    set(root "${PROJECT_BINARY_DIR}/roots/${target}")
    file(REMOVE_RECURSE "${root}")
    get_filename_component(parent "${root}/${folder}" DIRECTORY)
    file(MAKE_DIRECTORY "${parent}")
    file(GLOB nested CONFIGURE_DEPENDS "${source_dir}/*/CMakeLists.txt")
    if(nested)
        file(MAKE_DIRECTORY "${root}/${folder}")
        file(GLOB headers CONFIGURE_DEPENDS "${source_dir}/*.h")
        # A folder below that is no target of its own belongs to this one.
        file(GLOB parts CONFIGURE_DEPENDS LIST_DIRECTORIES true "${source_dir}/*")
        foreach(part IN LISTS parts)
            if(IS_DIRECTORY "${part}" AND NOT EXISTS "${part}/CMakeLists.txt")
                list(APPEND headers "${part}")
            endif()
        endforeach()
        foreach(header IN LISTS headers)
            get_filename_component(name "${header}" NAME)
            file(CREATE_LINK "${header}" "${root}/${folder}/${name}" SYMBOLIC)
        endforeach()
    else()
        file(CREATE_LINK "${source_dir}" "${root}/${folder}" SYMBOLIC)
    endif()
    set(${out} "${root}" PARENT_SCOPE)
endfunction()

function(incast_library folder)
    cmake_parse_arguments(PARSE_ARGV 1 arg "COLD" "" "SOURCES;DEPENDS")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "incast_library(${folder}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
    endif()
    set(source_dir "${PROJECT_SOURCE_DIR}/src/${folder}")
    if(NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL source_dir)
        message(FATAL_ERROR "incast_library(${folder}) belongs into src/${folder}/CMakeLists.txt")
    endif()
    incast_target_of("${folder}" target)
    incast_make_root(${target} "${folder}" "${source_dir}" root)
    if(arg_SOURCES)
        add_library(${target} STATIC ${arg_SOURCES})
        incast_common_options(${target})
        set(kind library)
        if(arg_COLD)
            set(kind cold)
        endif()
        incast_options_of(${kind} ${target})
        incast_precompiled(${target} ${kind})
        set_target_properties(${target} PROPERTIES UNITY_BUILD ${INCAST_UNITY} UNITY_BUILD_BATCH_SIZE 6)
        target_include_directories(${target} PUBLIC "${root}")
        incast_link(${target} PUBLIC ${arg_DEPENDS})
    else()
        add_library(${target} INTERFACE)
        target_include_directories(${target} INTERFACE "${root}")
        incast_link(${target} INTERFACE ${arg_DEPENDS})
    endif()
endfunction()

# <incast/abi.h>: what modules and the program that loads them must have in common, as a hash of these headers.
file(GLOB abi_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/incast/*.h")
foreach(header IN ITEMS base/setting.h transport/descriptor.h transport/medium.h transport/module.h)
    list(APPEND abi_headers "${PROJECT_SOURCE_DIR}/src/${header}")
endforeach()
set(abi "${CMAKE_BUILD_TYPE} ")
foreach(header IN LISTS abi_headers)
    file(SHA256 "${header}" hash)
    string(APPEND abi "${hash} ")
endforeach()
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${abi_headers})
string(SHA256 abi "${abi}")
string(SUBSTRING "${abi}" 0 12 abi)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/roots/abi/incast/abi.h"
     CONTENT "#pragma once\n#define INCAST_ABI_HEADERS @abi@\n" @ONLY)
set(INCAST_ABI_ROOT "${PROJECT_BINARY_DIR}/roots/abi")

# Modules lie beside the engine: in ../lib/incast of its folder, in a wheel in its own.
set(INCAST_MODULE_FOLDER ../lib/incast)
if(SKBUILD)
    set(INCAST_MODULE_FOLDER .)
endif()
add_custom_target(incast-modules)

function(incast_transport name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "MODULE" "SOURCES;DEPENDS")
    incast_library(transport/${name} SOURCES ${arg_SOURCES} DEPENDS ${arg_DEPENDS})
    if(NOT arg_MODULE)
        return()
    endif()
    incast_module(${name} SOURCES ${arg_MODULE} DEPENDS transport/${name})
endfunction()

# A shared object that the engine loads when a transport is first used.
function(incast_module name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
    set(module incast-transport-${name})
    add_library(${module} MODULE ${arg_SOURCES})
    incast_common_options(${module})
    incast_link(${module} PRIVATE ${arg_DEPENDS})
    set_target_properties(${module} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/incast")
    # The program has the symbol that is missing, and only its own.
    target_link_options(${module} PRIVATE -Wl,--as-needed)
    add_dependencies(incast-modules ${module})
    include(GNUInstallDirs)
    if(SKBUILD)
        install(TARGETS ${module} LIBRARY DESTINATION incast/_engine COMPONENT engine)
    else()
        install(TARGETS ${module} LIBRARY DESTINATION lib/incast COMPONENT ${name})
    endif()
endfunction()

# The public headers, <incast/...>: they stand alone and depend on no folder.
add_library(incast_contract INTERFACE)
target_include_directories(incast_contract INTERFACE "${PROJECT_SOURCE_DIR}/include")

function(incast_executable name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "COLD" "" "SOURCES;DEPENDS")
    add_executable(${name} ${arg_SOURCES})
    incast_common_options(${name})
    if(arg_COLD)
        incast_options_of(cold ${name})
    endif()
    incast_link(${name} PRIVATE ${arg_DEPENDS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endfunction()

# Tests run in the top folder of the sources, find the programs by the variable INCAST_BIN_DIR, and leave a result per
# test case in <build>/test-results. ctest runs a program as a whole, or in SHARDS parts beside each other: a process
# for each test case would take minutes under a sanitizer. FILTER is googletest's.
# SECONDS: about what a part takes under the address sanitizer, where that is much: ctest -j begins with the longest.
# The label tsan puts a test under the thread sanitizer in CI; the target tsan-tests builds just those.
# Fakes and helpers of tests, <support/...>: they belong to no library.
set(INCAST_SUPPORT_ROOT "${PROJECT_BINARY_DIR}/roots/tests")
file(REMOVE_RECURSE "${INCAST_SUPPORT_ROOT}")
file(MAKE_DIRECTORY "${INCAST_SUPPORT_ROOT}")
file(CREATE_LINK "${PROJECT_SOURCE_DIR}/tests/support" "${INCAST_SUPPORT_ROOT}/support" SYMBOLIC)

function(incast_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDS;FILTER;SECONDS" "SOURCES;DEPENDS;LABELS")
    get_property(enabled GLOBAL PROPERTY INCAST_TESTS_ENABLED)
    if(NOT enabled)
        return()
    endif()
    add_executable(${name} ${arg_SOURCES})
    incast_common_options(${name})
    incast_link(${name} PRIVATE ${arg_DEPENDS})
    target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest GTest::gtest_main)
    target_include_directories(${name} PRIVATE "${INCAST_SUPPORT_ROOT}")
    incast_options_of(test ${name})
    incast_precompiled(${name} test)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/test-bin")
    if(NOT arg_SHARDS)
        set(arg_SHARDS 1)
    endif()
    if(NOT arg_FILTER)
        set(arg_FILTER "*")
    endif()
    if(NOT arg_SECONDS)
        set(arg_SECONDS 0)
    endif()
    math(EXPR last "${arg_SHARDS} - 1")
    foreach(shard RANGE ${last})
        set(test "${name}")
        if(last GREATER 0)
            string(APPEND test ".${shard}")
        endif()
        add_test(NAME ${test} COMMAND ${name} --gtest_brief=1 "--gtest_filter=${arg_FILTER}"
                 WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
        set(environment "INCAST_BIN_DIR=${PROJECT_BINARY_DIR}/bin" "GTEST_TOTAL_SHARDS=${arg_SHARDS}"
            "GTEST_SHARD_INDEX=${shard}" "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test-results/${test}.xml")
        set_tests_properties(${test} PROPERTIES TIMEOUT 600 COST ${arg_SECONDS} LABELS "${arg_LABELS}"
                             ENVIRONMENT "${environment}")
    endforeach()
    if("tsan" IN_LIST arg_LABELS)
        if(NOT TARGET tsan-tests)
            add_custom_target(tsan-tests)
        endif()
        add_dependencies(tsan-tests ${name})
    endif()
endfunction()

# With INCAST_BENCH=ON: a google-benchmark program in <build>/bench-bin; its SOURCES say BENCHMARK_MAIN().
function(incast_bench name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
    if(INCAST_BENCH)
        add_executable(${name} ${arg_SOURCES})
        incast_common_options(${name})
        target_include_directories(${name} PRIVATE "${INCAST_SUPPORT_ROOT}")
        incast_link(${name} PRIVATE ${arg_DEPENDS})
        target_link_libraries(${name} PRIVATE benchmark::benchmark)
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench-bin")
    endif()
endfunction()

# SOURCES hold LLVMFuzzerTestOneInput. The corpus is tests/fuzz/corpus/<name>/: every input that once mattered stays
# there, and the replay keeps it fixed under every compiler and sanitizer.
function(incast_fuzzer name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
    if(INCAST_FUZZ)
        add_executable(${name} ${arg_SOURCES})
        incast_common_options(${name})
        target_include_directories(${name} PRIVATE "${INCAST_SUPPORT_ROOT}")
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        incast_link(${name} PRIVATE ${arg_DEPENDS})
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz-bin")
        if(NOT TARGET fuzzers)
            add_custom_target(fuzzers)
        endif()
        add_dependencies(fuzzers ${name})
    endif()
    get_property(enabled GLOBAL PROPERTY INCAST_TESTS_ENABLED)
    if(enabled)
        if(NOT TARGET incast_fuzz_replay)
            add_library(incast_fuzz_replay OBJECT "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp")
            incast_common_options(incast_fuzz_replay)
        endif()
        add_executable(${name}_replay ${arg_SOURCES} $<TARGET_OBJECTS:incast_fuzz_replay>)
        incast_common_options(${name}_replay)
        target_include_directories(${name}_replay PRIVATE "${INCAST_SUPPORT_ROOT}")
        incast_link(${name}_replay PRIVATE ${arg_DEPENDS})
        set_target_properties(${name}_replay PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/test-bin")
        add_test(NAME fuzz.${name}.corpus
                 COMMAND ${name}_replay "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
        set_tests_properties(fuzz.${name}.corpus PROPERTIES TIMEOUT 120 LABELS fuzz)
    endif()
endfunction()

enable_testing()
