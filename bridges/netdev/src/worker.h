// One queue of the device: its frames, the channels of that queue to the other devices, and the loop between them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <incast/channel.h>

#include "counters.h"
#include "frame_queue.h"
#include "greeting.h"
#include "settings.h"

namespace incast::netdev {

/// Hands on frames of one queue. A thread opens and runs it; others may read what it counts meanwhile.
///
/// Of two devices the one with the higher id calls the other one, again and again until it answers. Each side says who
/// it is (greeting.h), and from then on messages are frames. Nothing of the device waits for a peer: what has no room
/// goes into the queue of that peer, or is dropped and counted.
class Worker {
public:
    /// `settings` outlives it.
    Worker(const Settings& settings, std::uint32_t queue, Descriptor tap);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();

    /// Listens at the address of the queue. Failure: why it cannot.
    void open();
    /// Until `stop` is readable, or the device is gone. False: it is gone.
    [[nodiscard]] bool run(int stop);

    struct PeerState {
        bool is_up = false;
        std::uint32_t mtu = 0;          // that the peer said, 0: never
        std::string why;                // it is not up, if that is known
        std::size_t waiting_bytes = 0;  // in the queue to it
    };
    [[nodiscard]] PeerState peer(std::size_t index) const;
    /// In the order of the settings' members.
    [[nodiscard]] const Counters& counters(std::size_t index) const { return links_[index]->counters; }
    /// Frames for an address that none of the devices has.
    [[nodiscard]] std::uint64_t dropped_nobody() const { return dropped_nobody_.get(); }

private:
    struct Link;
    /// A channel, from the call or the accept on.
    struct Talk {
        incast_channel* channel = nullptr;
        Link* link = nullptr;  // null until a caller has said who it is
        std::int64_t give_up_ns = 0;
        bool has_greeted = false;   // this side
        bool is_greeted = false;    // by the peer: it is up
        bool may_have_data = true;  // until a read said that there is none
        bool is_over = false;       // to be removed
    };
    struct Link {
        explicit Link(const Member& its_member, std::size_t backlog_bytes) : member(its_member), queue(backlog_bytes) {}
        Member member;
        Talk* talk = nullptr;  // the one that is up, or else the call
        FrameQueue queue;
        std::int64_t next_call_ns = 0;
        std::int64_t pause_ns = 0;
        Counters counters;
        std::atomic<bool> is_up = false;
        std::atomic<std::uint32_t> mtu = 0;
        std::atomic<std::size_t> waiting_bytes = 0;
        std::string why;  // under the worker's mutex
    };

    [[nodiscard]] Link* link_of(std::uint16_t id);
    void drive(bool is_woken);
    void call_and_expire();
    void call(Link& link);
    void accept_all();
    Talk& add_talk(incast_channel* channel, Link* link);
    void greet(Talk& talk);
    void heard(Talk& talk, Bytes message);
    void come_up(Talk& talk, Link& link, const Greeting& said);
    void take_data(Talk& talk);
    void give_to_device(Link& link, Bytes message);
    void end(Talk& talk, const std::string& why);
    void remove_ended();
    /// False: the device is gone.
    bool read_device();
    void send(Link& link, Bytes message);
    /// False: there is no room.
    bool try_send(Link& link, Bytes message);
    void send_waiting(Link& link);
    [[nodiscard]] int timeout_ms() const;
    void say(const Link& link, const std::string& what) const;

    const Settings& settings_;
    const std::uint32_t queue_;
    Descriptor tap_;
    incast_channel_hub* hub_ = nullptr;
    incast_channel_listener* listener_ = nullptr;
    incast_channel_options options_ = INCAST_CHANNEL_OPTIONS;
    std::vector<std::unique_ptr<Link>> links_;
    std::vector<std::unique_ptr<Talk>> talks_;
    std::vector<std::byte> buffer_;
    std::int64_t now_ns_ = 0;
    bool has_more_ = false;   // to do, without being woken
    bool has_ended_ = false;  // one of the talks
    Counter dropped_nobody_;
    mutable std::mutex mutex_;
};

}  // namespace incast::netdev
