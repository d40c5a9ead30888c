#include "transport/shm/shm.h"

#include <array>
#include <bit>

#include "transport/cache_of_host.h"
#include "transport/settings.h"
#include "transport/shm/endpoint.h"

namespace incast::transport::shm {

namespace {

constexpr std::array list{
    Parameter{"ring_bytes", "32768", "bytes", "16384..16777216, a power of two",
              "ring per ordered pair of nodes for messages and notices"},
    Parameter{"stores", "auto", "", "auto, plain or streaming",
              "how bodies are stored into slots; auto: streaming if the slots do not fit into the cache, or no sink "
              "reads bodies and this processor is faster at it"},
    Parameter{"cache_bytes", "0", "bytes", "0..1099511627776",
              "cache that slots may fill before stores stream; 0: the last-level cache, at most 8 MiB of it per core"},
    Parameter{"connect_timeout_ms", "10000", "ms", "1..3600000", "connecting takes longer than this: peer_down"},
    Parameter{"hello_timeout_ms", "2000", "ms", "1..3600000",
              "an incoming connection that says no proper hello by then is refused"},
};

class Shm final : public Medium {
public:
    explicit Shm(const EndpointSettings& settings) : settings_(settings) {}
    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        return make_endpoint(settings_, options);
    }

private:
    EndpointSettings settings_;
};

}  // namespace

std::span<const Parameter> parameters() {
    return list;
}

Result<std::unique_ptr<Medium>> make(const Settings& settings) {
    if (const auto checked = check_names(transport_name, list, settings); !checked) return checked.error();
    EndpointSettings made;
    Error error;
    const auto number = [&](std::string_view name, std::uint64_t low, std::uint64_t high) -> std::uint64_t {
        const auto value = number_of(list, settings, name, low, high);
        if (value) return *value;
        if (error.message.empty()) error = value.error();
        return low;
    };
    made.ring_bytes = static_cast<std::uint32_t>(number("ring_bytes", 16384, std::uint64_t{1} << 24));
    made.cache_bytes = number("cache_bytes", 0, std::uint64_t{1} << 40);
    made.connect_timeout = static_cast<Time>(number("connect_timeout_ms", 1, 3'600'000)) * ps_per_ms;
    made.hello_timeout = static_cast<Time>(number("hello_timeout_ms", 1, 3'600'000)) * ps_per_ms;
    if (!error.message.empty()) return error;
    if (!std::has_single_bit(made.ring_bytes)) {
        return Error{"ring_bytes = '" + std::to_string(made.ring_bytes) +
                     "': must be a power of two in 16384..16777216"};
    }
    if (made.cache_bytes == 0) made.cache_bytes = usable_cache_bytes();
    const std::string_view stores = value_of(list, settings, "stores");
    if (stores == "plain") {
        made.stores = EndpointSettings::Stores::plain;
    } else if (stores == "streaming") {
        made.stores = EndpointSettings::Stores::streaming;
    } else if (stores != "auto") {
        return Error{"stores = '" + std::string(stores) + "': expected auto, plain or streaming"};
    }
    return std::unique_ptr<Medium>(std::make_unique<Shm>(made));
}

}  // namespace incast::transport::shm
