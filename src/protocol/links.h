// The connections of a node: which peers it needs, which incarnation of them, what the EM must be told of them.
//
// A connection belongs to one incarnation on each side. Before it was up it is retried; once it was up and is lost, it
// is never made again: the EM is told, and one of the two comes back as a new incarnation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bitmap.h"
#include "protocol/port.h"
#include "protocol/shape.h"

namespace incast::protocol {

/// What every step looks at is one cache line.
class alignas(64) Links {
public:
    Links(Port& port, const Shape& shape);

    void update_peer(Time now, Peer peer, std::uint32_t incarnation, const Blob& address);
    /// True if the connection counts: of the wanted incarnation. Otherwise it is dropped.
    bool on_up(Time now, Peer peer, std::uint32_t incarnation);
    /// True if it had counted.
    bool on_down(Time now, Peer peer, std::uint32_t incarnation);
    /// The EM dropped that incarnation.
    void drop(Peer peer, std::uint32_t incarnation);
    void drop(Peer peer);

    void connect_due(Time now) {
        if (now >= next_retry_) {
            connect_wanted(now);
        }
    }
    /// Tells the EM of connections made and lost since the last call.
    void flush_reports() {
        if (reports_.any()) {
            send_reports();
        }
    }
    [[nodiscard]] Time next_deadline() const { return next_retry_; }
    [[nodiscard]] bool is_up(Peer peer) const { return link(peer).state == State::up; }
    [[nodiscard]] std::uint32_t incarnation(Peer peer) const { return link(peer).incarnation; }

private:
    enum class State : std::uint8_t { none, wanted, connecting, up, lost };
    enum class Report : std::uint8_t { none, connected, lost };
    /// What is looked at for every message, of a peer that may be cold.
    struct Link {
        State state = State::none;
        Report report = Report::none;
        std::uint32_t incarnation = 0;  // newest known; that of the connection while connecting, up or lost
    };
    static_assert(sizeof(Link) == 8);
    /// The rest.
    struct Way {
        std::uint32_t report_incarnation = 0;
        Time retry_at = 0;
        std::string address;  // its bytes: short ones, as those of a simulation, lie here
    };

    [[nodiscard]] const Link& link(Peer peer) const {
        return peer == em_ ? em_link_ : links_[static_cast<std::size_t>(peer)];
    }
    [[nodiscard]] Link& link(Peer peer) { return peer == em_ ? em_link_ : links_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] Way& way(Peer peer) { return ways_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] bool needed(Peer peer) const;
    [[nodiscard]] bool carries_data(Peer peer) const;
    void want(Peer peer, Time at);
    void report(Peer peer, Report what);
    void connect_wanted(Time now);
    void send_reports();

    // What every step looks at comes first.
    Time next_retry_ = time_never;
    Peer em_;
    Link em_link_;  // here, because every step and most messages look at it
    base::Bitmap reports_;
    std::vector<Link> links_;  // but for that
    Port& port_;
    const Shape& shape_;
    std::vector<Way> ways_;
    base::Bitmap wanted_;
};

}  // namespace incast::protocol
