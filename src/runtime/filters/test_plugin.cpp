// A plug-in for tests: accepts MEPs whose number is a multiple of its argument, after hesitating once.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>

#include <incast/filter.h>

namespace {

struct Multiples {
    std::uint64_t every = 1;
    std::set<std::uint64_t> hesitated;
};

}  // namespace

#define INCAST_EXPORT __attribute__((visibility("default")))

INCAST_EXPORT void* incast_filter_open(const char* argument, char* error, size_t error_bytes) {
    const unsigned long long every = std::strtoull(argument, nullptr, 10);
    if (every == 0) {
        std::snprintf(error, error_bytes, "argument '%s' is no positive number", argument);
        return nullptr;
    }
    return new Multiples{every, {}};
}

INCAST_EXPORT int incast_filter_decide(void* opaque, const incast_filter_mep* mep) {
    auto* filter = static_cast<Multiples*>(opaque);
    if (filter->hesitated.insert(mep->mep).second) {
        return INCAST_FILTER_UNDECIDED;
    }
    return mep->mep % filter->every == 0 ? INCAST_FILTER_ACCEPT : INCAST_FILTER_REJECT;
}

INCAST_EXPORT void incast_filter_close(void* filter) {
    delete static_cast<Multiples*>(filter);
}
