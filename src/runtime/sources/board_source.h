// A source that boards feed: datagrams of MFPs or multi-event fragments, which may be lost, come twice or in another
// order (EB-C9). What the boards send is copied once, from the datagram to its place in the ring.
//
// Given up is, besides what others are ahead of for `patience`, what one is ahead of by more than the window.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "datagram/socket.h"
#include "ingest/packet.h"
#include "runtime/sources/windowed_source.h"

namespace incast::sources {

class BoardSource final : public WindowedSource {
public:
    explicit BoardSource(const BoardOptions& options)
        : WindowedSource(options), options_(options), reader_(options.format) {}

    Result<Ok> attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                      std::uint32_t count) override;
    [[nodiscard]] SourceStats stats(Time now) override;
    [[nodiscard]] std::vector<std::string> take_news(Time now) override;
    /// Where boards send to, once attached.
    [[nodiscard]] const std::string& address() const { return address_; }

private:
    Result<Ok> open_socket(const protocol::Config& config, std::uint32_t first_source);
    void drain(Time now) override;
    bool take(Time now, Bytes datagram);

    BoardOptions options_;
    datagram::Socket socket_;
    ingest::PacketReader reader_;
    std::unordered_map<std::uint16_t, std::uint32_t> index_of_;  // by the id in packets
    std::string address_;
    std::optional<Bytes> held_;  // a datagram that is ahead of its window
    bool told_address_ = false;
};

}  // namespace incast::sources
