// A transport that is loaded when it is first used: libraries that it needs are missed by nobody else.
//
// A module is a shared object incast-transport-NAME.so that has INCAST_TRANSPORT_MODULE(descriptor) in one source. It
// needs a symbol whose name says what it was compiled with; the program has just its own. The loader therefore refuses
// a module of another build before any of its code runs. Modules are never unloaded.
#pragma once

#include <incast/abi.h>

#include "transport/descriptor.h"

// The name of the symbol: a hash of the headers that both sides share, the compiler, the standard library, what is
// checked at run time.
#if defined(__clang__)
#define INCAST_ABI_COMPILER INCAST_ABI_PASTE(clang, __clang_major__)
#else
#define INCAST_ABI_COMPILER INCAST_ABI_PASTE(gcc, __GNUC__)
#endif
#if defined(_LIBCPP_VERSION)
#define INCAST_ABI_LIBRARY libcxx
#elif defined(_GLIBCXX_ASSERTIONS)
#define INCAST_ABI_LIBRARY libstdcxx_assertions
#else
#define INCAST_ABI_LIBRARY libstdcxx
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INCAST_ABI_SANITIZER address
#elif __has_feature(thread_sanitizer)
#define INCAST_ABI_SANITIZER thread
#endif
#endif
#if !defined(INCAST_ABI_SANITIZER)
#if defined(__SANITIZE_ADDRESS__)
#define INCAST_ABI_SANITIZER address
#elif defined(__SANITIZE_THREAD__)
#define INCAST_ABI_SANITIZER thread
#else
#define INCAST_ABI_SANITIZER plain
#endif
#endif
#define INCAST_ABI_PASTE_2(a, b) a##b
#define INCAST_ABI_PASTE(a, b) INCAST_ABI_PASTE_2(a, b)
#define INCAST_ABI_JOIN_2(a, b, c, d) incast_abi_##a##_##b##_##c##_##d
#define INCAST_ABI_JOIN(a, b, c, d) INCAST_ABI_JOIN_2(a, b, c, d)
#define INCAST_ABI_SYMBOL \
    INCAST_ABI_JOIN(INCAST_ABI_HEADERS, INCAST_ABI_COMPILER, INCAST_ABI_LIBRARY, INCAST_ABI_SANITIZER)

extern "C" {
/// The program that loads modules defines it.
__attribute__((visibility("default"))) extern const char INCAST_ABI_SYMBOL;
}

namespace incast::transport {

/// What a module exports under the name `incast_transport_module`.
struct Module {
    const char* abi;  // the address of the symbol, so that it is needed
    const Descriptor* descriptor;
};

}  // namespace incast::transport

/// `descriptor`: a constant of that type with a `make`, in the module.
#define INCAST_TRANSPORT_MODULE(descriptor)                                                                  \
    extern "C" {                                                                                             \
    __attribute__((visibility("default"))) extern const ::incast::transport::Module incast_transport_module; \
    const ::incast::transport::Module incast_transport_module{&INCAST_ABI_SYMBOL, &(descriptor)};            \
    }
