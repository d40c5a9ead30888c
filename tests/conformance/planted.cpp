#include "planted.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "transport/decorator/forward.h"

namespace incast::conformance {

namespace {

using transport::decorator::Forward;

class LongKeys final : public Forward {
public:
    using Forward::Forward;
    Result<Blob> expose(Local region) override {
        auto key = inner().expose(region);
        if (key) key->bytes.resize(max_key_bytes + 1);
        return key;
    }
};

class LongAddress final : public Forward {
public:
    using Forward::Forward;
    [[nodiscard]] Blob address() const override { return {std::vector<std::byte>(max_address_bytes + 1)}; }
};

template <class Violation>
std::unique_ptr<Transport> plant(std::unique_ptr<Transport> inner) {
    return std::make_unique<Violation>(std::move(inner));
}

struct Entry {
    Planted planted;
    std::unique_ptr<Transport> (*make)(std::unique_ptr<Transport>);
};

constexpr std::array entries{
    Entry{{"long_keys", "TC_S3", "inproc"}, plant<LongKeys>},
    Entry{{"long_address", "TC_S3", "inproc"}, plant<LongAddress>},
};
constexpr auto list = [] {
    std::array<Planted, entries.size()> all;
    std::ranges::transform(entries, all.begin(), &Entry::planted);
    return all;
}();

}  // namespace

std::span<const Planted> planted_violations() {
    return list;
}

const Planted* planted_here() {
    const char* name = std::getenv("INCAST_PLANT");
    if (name == nullptr) return nullptr;
    const auto found = std::ranges::find(list, std::string_view(name), &Planted::name);
    if (found == list.end()) std::abort();
    return &*found;
}

std::unique_ptr<Transport> make_planted(std::unique_ptr<Transport> inner, const Planted& planted) {
    return std::ranges::find(entries, planted.name, [](const Entry& entry) { return entry.planted.name; })
        ->make(std::move(inner));
}

}  // namespace incast::conformance
