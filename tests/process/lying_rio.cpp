// The transport rio of a node that lies: it does what the real one does, and besides goes past it. With raw operations
// of SoftRIO, by a handle of the same master port, it writes and reads where the regions of other nodes lie at each
// peer. INCAST_LIES names the file that it says the outcomes in: "truth E" of what it writes anew where it may, "lie E"
// else.
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fcntl.h>

#include "transport/blob.h"
#include "transport/decorator/forward.h"
#include "transport/module.h"
#include "transport/rio/descriptor/descriptor.h"
#include "transport/rio/endpoint.h"
#include "transport/rio/rio.h"

namespace {

using namespace incast;
using transport::from_blob;
using transport::rio::window_gap;
namespace rio = transport::rio;

constexpr int regions_around = 8;
constexpr int times = 4;  // for each region that it may write to

class Lying final : public transport::decorator::Forward {
public:
    explicit Lying(std::unique_ptr<Transport> inner) : Forward(std::move(inner)) {
        const char* const path = std::getenv("INCAST_LIES");  // NOLINT(concurrency-mt-unsafe)
        if (path != nullptr) said_.open(path);
    }

    Post connect(Peer peer, const Blob& address, std::uint32_t incarnation) override {
        (void)from_blob(address, addresses_[static_cast<std::uint32_t>(peer)]);
        return inner().connect(peer, address, incarnation);
    }
    Result<Remote> import_key(Peer peer, const Blob& key) override {
        auto remote = inner().import_key(peer, key);
        if (remote) (void)from_blob(key, keys_[static_cast<std::uint32_t>(*remote)]);
        return remote;
    }
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        const Post post = inner().write(peer, head, body, target, notice, token);
        const auto number = static_cast<std::uint32_t>(target.region);
        if (post != Post::done || told_[number]++ >= times) return post;
        const rio::Address& there = addresses_[static_cast<std::uint32_t>(peer)];
        const rio::Key& key = keys_[number];
        const std::uint64_t own = key.place.address;
        // No record has left that says that it is there: it may be written once more, as it is.
        const Bytes same = inner().local(body);
        if (!same.empty()) say("truth", put(there.destid, own + target.offset + head.size(), same));
        for (std::uint64_t back = 0; back <= 2 * regions_around; ++back) {
            const std::uint64_t at = own + regions_around * window_gap - back * window_gap;
            // Not where slots for messages are, which all reach.
            if (at == own || at == there.slots) continue;
            lie(there.destid, at + target.offset);
            lie(there.destid, at);
        }
        lie(there.destid, own + key.bytes + rio::api::page_bytes);
        return post;
    }

private:
    rio::api::MasterPort& port() {
        if (!port_) {
            auto opened = rio::api::MasterPort::open(0, O_NONBLOCK);
            if (!opened) std::abort();
            port_.emplace(std::move(*opened));
        }
        return *port_;
    }
    int put(rio::api::Destid destid, std::uint64_t address, Bytes bytes) {
        return port().write(destid, address, bytes, rio::api::Completion::placed).value();
    }
    void lie(rio::api::Destid destid, std::uint64_t address) {
        std::array<std::byte, 256> lies{};
        lies.fill(std::byte{0xEE});
        (void)port().write(destid, address, lies, rio::api::Completion::left).value();
        (void)port().post(destid, address, lies).value();
        say("lie", put(destid, address, lies));
        say("lie", port().read(destid, address, lies).value());
    }
    void say(const char* what, int outcome) { said_ << what << ' ' << outcome << std::endl; }

    std::optional<rio::api::MasterPort> port_;
    std::unordered_map<std::uint32_t, rio::Address> addresses_;  // by node
    std::unordered_map<std::uint32_t, rio::Key> keys_;           // by number of the import
    std::unordered_map<std::uint32_t, int> told_;
    std::ofstream said_;
};

class LyingMedium final : public transport::Medium {
public:
    explicit LyingMedium(std::unique_ptr<transport::Medium> inner) : inner_(std::move(inner)) {}
    Result<std::unique_ptr<Transport>> endpoint(const transport::EndpointOptions& options) override {
        auto made = inner_->endpoint(options);
        if (!made) return made.error();
        return std::unique_ptr<Transport>(std::make_unique<Lying>(std::move(*made)));
    }

private:
    std::unique_ptr<transport::Medium> inner_;
};

Result<std::unique_ptr<transport::Medium>> make(const transport::Settings& given) {
    auto made = rio::make(given);
    if (!made) return made.error();
    return std::unique_ptr<transport::Medium>(std::make_unique<LyingMedium>(std::move(*made)));
}

const transport::Descriptor lying = [] {
    transport::Descriptor whole = rio::describe();
    whole.make = make;
    return whole;
}();

}  // namespace

INCAST_TRANSPORT_MODULE(lying)
