// How endpoints come to be: a Medium is what the endpoints of one process share (an inproc hub, a simulated world, TCP
// settings).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <incast/transport.h>

#include "base/setting.h"

namespace incast::transport {

/// Takes one line for a person (no newline), on the endpoint's thread: a refused connection, a lost peer and why.
using LogSink = std::function<void(std::string_view)>;

struct EndpointOptions {
    Peer self{};                      // this node's index in the run
    std::uint32_t incarnation = 1;    // of this endpoint; greater than that of every earlier endpoint of the node
    std::uint64_t run = 0;            // endpoints of different runs never connect
    std::uint64_t token = 0;          // secret of the run; a connection must present it (compared in constant time)
    std::uint32_t max_peers = 64;     // indices of peers are below this
    std::uint32_t max_dialled = 0;    // peers beside these that dial or are dialled, where the transport can
    std::uint32_t max_posted = 1024;  // per peer, at most: capabilities() says what the transport made of it
    bool shareable = false;           // share() works: regions are memory files, which get no huge pages by themselves
    LogSink log;                      // may be empty
};

class Medium {
public:
    Medium() = default;
    Medium(const Medium&) = delete;
    Medium& operator=(const Medium&) = delete;
    virtual ~Medium() = default;
    virtual Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) = 0;
};

/// The text given for a transport's own settings, by name ("bind" -> "127.0.0.1"); settings.h checks it.
using Settings = std::map<std::string, std::string>;

/// What a run decides by before there is an endpoint: data, so that nobody has to ask for a transport's name.
struct Traits {
    Nature nature;                    // of its endpoints, as they say themselves
    bool in_process = false;          // all nodes live in one process
    bool simulated = false;           // in virtual time, on hosts of its own; bodies are phantom
    std::uint32_t most_credits = 64;  // of a builder unit, that are chosen for it
    std::uint32_t rank_here = 0;      // the highest is what a run takes whose nodes are all on this host; 0: never
    std::uint32_t rank_across = 0;    // the same, if some may be on other hosts
    std::string_view bind =
        {};  // the setting with this node's address, if peers reach it as it reached the coordinator

    /// Writes are stores of one process into the memory of another, which the setting "stores" sends past the cache or
    /// into it.
    [[nodiscard]] constexpr bool shares_memory() const {
        return nature.one_host && nature.copies == Copies::processor && !in_process;
    }
};

}  // namespace incast::transport
