// One endpoint under remote control: the conformance suite drives it with commands, wherever it lives - in the test's
// thread, in a thread of its own, or in another process. Commands and replies are plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "traffic.h"
#include "transport/medium.h"

namespace incast::conformance {

using transport::EndpointOptions;

enum class Decoration : std::uint8_t { none, trace, count, fault, pad };

/// What to make an endpoint from.
struct Recipe {
    std::string transport;
    Decoration decoration = Decoration::none;
    transport::Settings settings;
    bool starts_anew = false;  // its library does not live on in a process that is forked
};

enum class Op : std::uint8_t {
    create,          // self, incarnation, run, token, max_peers, max_dialled, max_posted, shareable; not ok: text
    destroy,         //
    address,         // -> blob
    connect,         // peer, blob, incarnation -> post
    disconnect,      // peer
    dial,            // blob, length (of the greeting), seed (of its pattern) -> number, of the peer; not ok: text
    accept,          // peer -> post
    ended,           // peer, incarnation
    drained,         // -> ok
    allocate,        // length -> number, of the region; not ok: text
    memory,          // region -> length: of its memory; ok if that is 64-byte aligned
    is_zero,         // region, offset, length -> ok if local() is all zero
    fill,            // region, offset, length: with the pattern of seed
    matches,         // region, offset, length -> ok if local() is the pattern of seed
    local,           // region, offset, length -> text: the bytes of local()
    expose,          // region -> blob; not ok: text
    grant,           // peer, region, offset, length, repeat: places, remote_offset: the stride, head_bytes: 1 to read,
                     // 2 to write, 3 both -> blob; not ok: text
    share,           // region, offset, length -> ok if a mapping of it shows the pattern of seed; not ok: text
    import_key,      // peer, blob -> number; not ok: text
    release,         // region -> ok; not ok: text
    release_import,  // remote -> ok; not ok: text
    send,   // peer, length, seed, repeat: message i is the pattern of seed + i; stops at the first that is not done
            //   -> post of the last, length: how many were done
    write,  // peer, head_bytes (the pattern of seed), region, offset, length, remote, remote_offset, notice, token ->
            // post
    write_from,    // the same, but the body is the pattern of offset, in memory of the agent's own -> post
    read,          // peer, remote, remote_offset, region, offset, length, token -> post
    view,          // remote, remote_offset, length -> length: of the view; ok if it is the pattern of seed
    hold_view,     // the same, and keeps the view
    held_view,     // length -> ok if the view that is kept is the pattern of seed, now
    poll,          // now, length: events at a time -> events
    prepare_wait,  // -> ok
    sleep,         // length: milliseconds; waits as a driver does until there are events -> events
    traffic,  // peer, region (received; the next one is the source), remote (the peer's received; the next one is its
              // source), seed, length (items): prepares a Traffic
    traffic_step,  // now -> ok: there is more to do; text: failure
    traffic_run,   // length: milliseconds; all of it -> text: failure
    copied,        // -> length: copied_bytes()
};

struct Command {
    Op op{};
    std::uint8_t head_bytes = 0;
    bool has_notice = false;
    bool shareable = false;
    std::uint16_t notice = 0;
    std::uint16_t region = 0;
    std::uint32_t peer = 0;
    std::uint32_t incarnation = 1;
    std::uint32_t max_peers = 4;
    std::uint32_t max_dialled = 4;
    std::uint32_t max_posted = 1024;
    std::uint32_t remote = 0;
    std::uint64_t run = 1;
    std::uint64_t token = 0;
    std::uint64_t length = 0;
    std::uint64_t offset = 0;
    std::uint64_t remote_offset = 0;
    std::uint64_t seed = 0;
    std::uint64_t repeat = 1;
    Time now = 0;
    Blob blob = {};
};

/// An event, with the message in place of a pointer to it.
struct Seen {
    Event::Kind kind{};
    Status status{};
    std::uint16_t value = 0;
    std::uint32_t peer = 0;
    std::uint32_t incarnation = 0;
    Token token = 0;
    std::string message = {};
};

struct Reply {
    bool ok = false;
    Post post{};
    std::uint32_t number = 0;  // of a region or import
    std::uint64_t length = 0;
    Time next_deadline = 0;
    Capabilities capabilities;
    Blob blob = {};
    std::string text;  // an error, or bytes
    std::vector<Seen> events;
};

class Agent {
public:
    /// `medium` may be shared by agents of one process.
    Agent(Recipe recipe, std::shared_ptr<transport::Medium> medium);
    ~Agent();
    Agent(const Agent&) = delete;
    Agent& operator=(const Agent&) = delete;
    Reply execute(const Command& command);

private:
    void create(const Command& command, Reply& reply);
    void poll(std::uint64_t events_at_a_time, Time now, Reply& reply);
    void send(const Command& command, Reply& reply);
    void write(const Command& command, Reply& reply);
    void sleep(const Command& command, Reply& reply);
    void run_traffic(const Command& command, Reply& reply);
    void share(const Command& command, Reply& reply);
    [[nodiscard]] bool matches(Bytes bytes, const Command& command) const;

    struct Extras;
    Recipe recipe_;
    std::shared_ptr<transport::Medium> medium_;
    std::unique_ptr<Extras> extras_;  // outlives the transport, whose decorators refer to it
    std::unique_ptr<Transport> transport_;
    std::unique_ptr<Traffic> traffic_;
    Bytes held_view_;
    std::vector<std::vector<std::byte>> bodies_;  // of write_from: the transport may still read them
};

}  // namespace incast::conformance
