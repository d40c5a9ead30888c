// How endpoints come to be: a Medium is what the endpoints of one process share (an inproc hub, a simulated world, TCP
// settings).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <incast/transport.h>

namespace incast::transport {

/// Takes one line for a person (no newline), on the endpoint's thread: a refused connection, a lost peer and why.
using LogSink = std::function<void(std::string_view)>;

struct EndpointOptions {
    Peer self{};                      // this node's index in the run
    std::uint32_t incarnation = 1;    // of this endpoint; greater than that of every earlier endpoint of the node
    std::uint64_t run = 0;            // endpoints of different runs never connect
    std::uint64_t token = 0;          // secret of the run; a connection must present it (compared in constant time)
    std::uint32_t max_peers = 64;     // indices of peers are below this
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

/// A transport's own settings, by parameter name ("bind" -> "127.0.0.1"). Values are checked by the transport against
/// its parameter list.
using Settings = std::map<std::string, std::string>;

/// One setting of a transport, as documentation (the tables in docs/transports are made from these) and for checking.
struct Parameter {
    std::string_view name;
    std::string_view default_value;
    std::string_view unit;   // "", "bytes", "ns" ...
    std::string_view range;  // for a person: "1..64", "an IP address"
    std::string_view help;
};

struct Builtin {
    std::string_view name;
    std::string_view summary;
    bool bounds_writes;  // its endpoints' capability
    std::span<const Parameter> parameters;
    Result<std::unique_ptr<Medium>> (*make)(const Settings&);
};

/// THE list (transport/builtin.cpp). The conformance suite is instantiated from it.
std::span<const Builtin> builtin_transports();
/// nullptr if there is none of that name.
const Builtin* find_transport(std::string_view name);

}  // namespace incast::transport
