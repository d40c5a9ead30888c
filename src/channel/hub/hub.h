// The channels of one endpoint: they share its connections, one for each peer, and are told apart by the notice, which
// is a channel's number. Channels within the endpoint are rings in memory. One thread drives a hub: whoever uses the
// endpoint. Nothing here waits; what cannot be done now is done by a later poll().
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "base/bitmap.h"
#include "channel/hub/channel.h"
#include "channel/hub/control.h"
#include "channel/hub/fork_guard.h"

namespace incast::channel {

/// Names a channel of a hub; of one that was closed it names none, for the next 65536 channels of its number.
enum class Id : std::uint32_t {};

struct HubSettings {
    std::uint32_t max_channels = 256;  // at most 32768, and less where the endpoint has fewer regions
    std::uint64_t longest_ring_bytes = std::uint64_t{64} << 20U;  // that a peer may ask for
    std::uint32_t backlog = 128;                                  // channels of a port that wait for accept()
};

struct Options {
    Shape shape;  // of both rings
    Kind kind = Kind::bytes;
    Way announce = Way::doorbell;
    Way acknowledge = Way::doorbell;
};

class Hub {
public:
    /// The endpoint outlives the hub, and nobody else polls it. `self`: its own number, for channels within it.
    Hub(Transport& endpoint, Peer self, const HubSettings& settings = {});
    Hub(const Hub&) = delete;
    Hub& operator=(const Hub&) = delete;
    ~Hub();

    // --- control path

    /// Channels of that kind may be opened to this port from now on. Error: the port is taken. `backlog`: another than
    /// that of the settings, if not 0.
    Result<Ok> listen(std::uint32_t port, Kind kind, std::uint32_t backlog = 0);
    /// Nobody is let in any more; those that wait for accept() are given up.
    void unlisten(std::uint32_t port);
    /// The next channel that was opened to the port: it is open.
    std::optional<Id> accept(std::uint32_t port);
    /// A channel to a port of a peer that is up, or of this hub. It takes bytes once it is open.
    Result<Id> connect(Peer peer, std::uint32_t port, const Options& options = {});
    /// The channel is given back: what was written still goes; what the peer still writes is dropped.
    void close(Id id);
    /// The same, but what has not left is dropped, too. The peer sees a reset, unless it had all of it.
    void abort(Id id);
    /// Gives up the connection with its peer, and with that all channels that go by it. It stays to be given back.
    void disconnect(Id id);

    // --- data: see Sender and Receiver. Of an Id that names no channel there is nothing, and nothing is taken.

    [[nodiscard]] bool is_open(Id id) const;
    /// What ended the channel. What came before that can still be read, unless the peer broke the rules.
    [[nodiscard]] Fault fault(Id id) const;
    /// The same in words; of Fault::broken also which rule it was.
    [[nodiscard]] std::string why(Id id) const;
    /// What fills buffers leaves at once where a post is a copy, so that it is copied once.
    std::size_t write(Id id, Bytes bytes);
    /// Where the endpoint has no `any_memory` the bytes are copied, and released() is late, but true.
    std::size_t write_in_place(Id id, Bytes bytes);
    [[nodiscard]] std::uint64_t written(Id id) const;
    /// All of it where the channel has ended, and the endpoint has let go of what was posted.
    [[nodiscard]] std::uint64_t released(Id id) const;
    [[nodiscard]] bool has_room(Id id) const;
    void flush(Id id);
    void finish(Id id);
    [[nodiscard]] bool is_finished(Id id) const;
    std::size_t read(Id id, std::span<std::byte> into);
    Bytes readable(Id id);
    void consume(Id id, std::size_t bytes);
    /// The peer has finished, and all was read.
    [[nodiscard]] bool has_ended(Id id) const;
    [[nodiscard]] std::optional<Peer> peer_of(Id id) const;
    /// As the side chose that connected.
    [[nodiscard]] std::optional<Options> options_of(Id id) const;

    // --- driving

    /// Polls the endpoint, takes what came, posts what can leave: also what was written and not flushed. True if
    /// something happened.
    bool poll(Time now);
    /// Since it was asked for the last time, something came: from the endpoint, by looking, or within the hub.
    [[nodiscard]] bool took_something() { return std::exchange(has_taken_, false); }
    /// Sleeping on wait_fd() is safe, and where must_look() for a short time. False: there is something to do.
    bool prepare_wait();
    [[nodiscard]] int wait_fd() const { return endpoint_.wait_fd(); }
    [[nodiscard]] Time next_deadline() const { return endpoint_.next_deadline(); }
    /// Something of a peer is only seen by looking.
    [[nodiscard]] bool must_look() const;
    /// Channels that are not wholly closed: those that were given back linger until all of theirs has left.
    [[nodiscard]] std::size_t channels() const { return used_.count(); }

    // --- descriptors, made when they are first asked for; the hub's own. Readable exactly while it is so.

    /// There is something to read, the end of it, or a fault.
    Result<int> data_fd(Id id);
    /// There is room to write, or never will be again.
    Result<int> room_fd(Id id);
    /// While a caller waits to read, the descriptor of data stays as it is: what comes is the caller's. Afterwards it
    /// is as it should be.
    void hold_data(Id id, bool is_held);
    /// The same from now on with descriptors that are there already; one that is not open is left aside.
    void set_descriptors(Id id, Level data, Level room);
    /// The channel has none from now on.
    std::pair<Level, Level> take_descriptors(Id id);

    /// Of the endpoint, in order: peer_up and peer_down; and knock, with `greeting`.
    struct PeerEvent {
        Event event;
        std::vector<std::byte> greeting;
    };
    std::optional<PeerEvent> next_peer_event();

private:
    struct Port {
        Kind kind{};
        std::uint32_t backlog = 0;
        std::deque<std::uint16_t> waiting;
    };
    struct Refusal {
        Peer peer;
        Control control;
    };

    // Coming and going: hub.cpp.
    [[nodiscard]] Channel* find(Id id) const;
    [[nodiscard]] Id id_of(std::uint16_t number) const;
    Result<Channel*> make(Peer peer, const Options& options);
    Result<Ok> give_memory(Channel& channel);
    Result<Id> connect_within(std::uint32_t port, const Options& options);
    void give_back(Channel& channel);
    void fail(Channel& channel, Fault fault);
    void free(Channel& channel);
    Bytes readable(Channel& channel);
    std::size_t write_now(Channel& channel, Bytes bytes);
    void after_reading(Channel& channel);
    void update(Channel& channel);
    void touch(const Channel& channel) { busy_.set(channel.number); }

    // What came: taking.cpp.
    void take(const Event& event);
    void take_notice(Peer peer, std::uint16_t notice);
    void take_completion(Token token, Status status);
    void take_message(Peer peer, Bytes message);
    void take_open(Peer peer, const Received& received);
    void take_opened(Channel& channel, const Received& received);
    void take_closed(Channel& channel, bool is_finished);
    void drop(Peer peer, const char* why);
    void leave(Peer peer, Fault fault);
    void lose_all(Peer peer);
    [[nodiscard]] Channel* from(Peer peer, std::uint16_t number) const;
    void look(Channel& channel);
    void mirror_buffer(Channel& channel);
    void mirror_cells(Channel& channel);
    bool take_credits(Channel& channel);

    // What leaves: posting.cpp.
    void work(Channel& channel);
    void refuse();
    std::size_t write_through(Channel& channel, Bytes bytes);
    bool post_control(Channel& channel);
    bool post_buffers(Channel& channel);
    bool post_wrote(Channel& channel);
    bool post_wish(Channel& channel);
    bool post_credit(Channel& channel);
    void hand_over(Channel& channel, const Sender::Outgoing& out);
    void drain(Channel& channel);
    void end(Channel& channel);
    bool say_closed(Channel& channel);
    Post send(Peer peer, const Control& control, Bytes key = {});
    bool settle(Channel& channel, Post post);
    [[nodiscard]] bool is_blocked(Peer peer) const;

    Transport& endpoint_;
    Peer self_;
    HubSettings settings_;
    bool posts_copy_;  // the caller's memory, at once
    std::vector<std::unique_ptr<Channel>> channels_;
    std::vector<std::uint16_t> generations_;
    base::Bitmap used_;
    base::Bitmap busy_;    // have, or may have, something to post
    base::Bitmap looked_;  // have a ring or cells that are polled
    std::map<std::uint32_t, Port> ports_;
    std::vector<Refusal> refusals_;
    std::map<std::uint32_t, bool> up_;  // peers that are; true: it turned a post away
    std::deque<PeerEvent> peer_events_;
    std::uint16_t next_number_ = 0;
    ForkGuard fork_guard_;
    bool has_happened_ = false;
    bool has_taken_ = false;
};

}  // namespace incast::channel
