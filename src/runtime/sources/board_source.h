// A source that boards feed: datagrams of MFPs or multi-event fragments, which may be lost, come twice or in another
// order (EB-C9). What the boards send is copied once, from the datagram to its place in the ring; a MEP is made when
// all sources of this readout unit have all of it, or when what is missing is given up.
//
//   places of a source:  | kept for the builder units (retention) | open: being filled |
//                          released                                next
//
// Given up is what others of this readout unit were ahead of for `patience`, or by more than the window. Before that
// the socket is emptied, so that nothing is given up that has come.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "datagram/socket.h"
#include "ingest/packet.h"
#include "ingest/window.h"
#include "runtime/sources/source.h"

namespace incast::sources {

class BoardSource final : public RuntimeSource {
public:
    explicit BoardSource(const BoardOptions& options) : options_(options), reader_(options.format) {}

    Result<Ok> attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                      std::uint32_t count) override;
    [[nodiscard]] std::span<const Local> regions() const override { return {&region_, 1}; }
    void start(Time now, protocol::MepId first, std::uint64_t first_event) override;
    void start_triggers(Time) override {}
    bool produce(Time now, protocol::MepId mep) override;
    const protocol::Piece& piece(protocol::MepId mep, std::uint32_t index) override {
        return pieces_[mep % places_ * windows_.size() + index];
    }
    void release(protocol::MepId) override {}
    [[nodiscard]] Time next_ready() const override { return next_ready_; }
    [[nodiscard]] Time impatient_at() const override;
    [[nodiscard]] bool asks_others() const override { return next_ >= known_below_; }
    void give_up(Time now, protocol::MepId mep) override;
    [[nodiscard]] std::uint64_t total_meps() const override {
        return (options_.total_events + options_.packing - 1) / options_.packing;
    }
    [[nodiscard]] SourceStats stats(Time now) override;
    void clear_peak() override {}
    [[nodiscard]] std::vector<ingest::Counts> counts_of_boards() const override;
    [[nodiscard]] std::vector<std::string> take_news(Time now) override;
    /// Where boards send to, once attached.
    [[nodiscard]] const std::string& address() const { return address_; }

private:
    /// What was told of a source.
    struct Told {
        std::uint64_t restarts = 0;
        std::uint64_t jumps = 0;
        std::uint64_t size_changes = 0;
        std::uint64_t packets = 0;
        bool in_step = true;
        std::uint32_t quiet_looks = 0;  // in a row, while others sent
        bool is_silent = false;
    };

    Result<Ok> open_socket(const protocol::Config& config, std::uint32_t first_source);
    void drain(Time now);
    bool take(Time now, Bytes datagram);
    void note_known(Time now, std::uint64_t below);
    [[nodiscard]] bool is_complete() const;
    [[nodiscard]] bool may_give_up(Time now) const;
    void make(Time now);
    void tell_of(std::uint32_t index, bool others_sent, std::vector<std::string>& news);

    BoardOptions options_;
    datagram::Socket socket_;
    ingest::PacketReader reader_;
    std::vector<ingest::Window> windows_;                        // by source of this readout unit
    std::unordered_map<std::uint16_t, std::uint32_t> index_of_;  // by the id in packets
    std::vector<Told> told_;
    std::vector<std::uint64_t> offsets_;
    Local region_{};
    std::span<std::byte> memory_;
    std::vector<protocol::Piece> pieces_;  // by place, then source
    std::vector<Time> known_since_;        // by open MEP: something of it, or of a later one, came
    std::string address_;
    protocol::Checksum checksum_ = protocol::Checksum::off;
    std::uint64_t places_ = 1;
    std::uint64_t open_ = 1;
    protocol::MepId next_ = 0;
    std::uint64_t known_below_ = 0;
    std::uint64_t give_up_below_ = 0;  // packets beyond the window wait for these
    std::optional<Bytes> held_;        // the datagram that does
    Time next_ready_ = 0;
    Time quiet_since_ = 0;  // nothing of the next MEP, or of a later one, has come since
    bool is_silent_ = false;
    Time last_datagram_ = 0;
    Time told_at_ = 0;
    bool told_address_ = false;
    bool told_refusal_ = false;
    std::string refusal_;  // why the first datagram was refused
    std::uint64_t refused_ = 0;
    SourceStats stats_;
};

}  // namespace incast::sources
