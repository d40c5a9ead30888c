#include "transport/shm/shm.h"

#include <array>
#include <bit>
#include <utility>

#include "transport/cache_of_host.h"
#include "transport/settings.h"
#include "transport/shm/endpoint.h"

namespace incast::transport::shm {

namespace {

using base::Kind;

constexpr double ms = ps_per_ms;
constexpr std::array<std::string_view, 3> stores_words{"auto", "plain", "streaming"};

constexpr std::array list{
    base::number(Kind::bytes, "ring", "32KiB", 16384, 1 << 24,
                 "ring per ordered pair of nodes for messages and notices", "a power of two"),
    base::choice("stores", "auto", stores_words,
                 "how bodies are stored into slots; auto: streaming if the slots do not fit into the cache, or no sink "
                 "reads bodies and this processor is faster at it"),
    base::number(
        Kind::bytes, "cache", "0", 0, 0x1p40,
        "cache that slots may fill before stores stream; 0: the last-level cache, at most 8 MiB of it per core"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3'600'000 * ms,
                 "connecting takes longer than this: peer_down"),
    base::number(Kind::duration, "hello_timeout", "2s", ms, 3'600'000 * ms,
                 "an incoming connection that says no proper hello by then is refused"),
};

/// They go with the next version.
constexpr std::array former_list{
    base::FormerName{"ring_bytes", "ring", ""},
    base::FormerName{"cache_bytes", "cache", ""},
    base::FormerName{"connect_timeout_ms", "connect_timeout", "ms"},
    base::FormerName{"hello_timeout_ms", "hello_timeout", "ms"},
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

std::span<const base::Setting> settings() {
    return list;
}

std::span<const base::FormerName> former_names() {
    return former_list;
}

Result<std::unique_ptr<Medium>> make(const Settings& given) {
    const Result<Values> values = Values::read(transport_name, list, given);
    if (!values) return values.error();
    EndpointSettings made;
    made.ring_bytes = static_cast<std::uint32_t>(values->whole("ring"));
    if (!std::has_single_bit(made.ring_bytes)) return values->refuse("ring", "no power of two");
    made.stores = values->choice<EndpointSettings::Stores>("stores");
    made.cache_bytes = values->whole("cache");
    if (made.cache_bytes == 0) made.cache_bytes = usable_cache_bytes();
    made.connect_timeout = values->time("connect_timeout");
    made.hello_timeout = values->time("hello_timeout");
    return std::unique_ptr<Medium>(std::make_unique<Shm>(made));
}

os::Descriptor way_for_caller(Transport& endpoint, Time now) {
    return static_cast<Endpoint&>(endpoint).way_for_caller(now);
}

Result<Peer> dial_by(Transport& endpoint, os::Descriptor way, const Blob& address, Bytes greeting) {
    return static_cast<Endpoint&>(endpoint).dial_by(std::move(way), address, greeting);
}

void cancel_wait(Transport& endpoint) {
    static_cast<Endpoint&>(endpoint).cancel_wait();
}

}  // namespace incast::transport::shm
