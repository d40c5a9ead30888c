// The Unix socket of a pair: hello and answer, memory handed over, and the end of either side, which the kernel tells.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <incast/transport.h>

#include "os/descriptor.h"

namespace incast::transport::shm {

inline constexpr std::uint16_t channel_version = 1;

enum class Verdict : std::uint32_t {
    accepted = 0,
    wrong_version,
    wrong_run,
    wrong_token,
    malformed,
    wrong_node,
    stale_incarnation,
    no_room,
};
const char* to_string(Verdict verdict);

/// One packet. Hello, knock and an accepting answer carry two descriptors, inbox and bell; a region carries one,
/// which is for reading only if the region is to be read. A greeting follows a knock.
struct Packet {
    static constexpr std::uint64_t expected_magic = 0x314D485354534143;  // "CASTSHM1"
    enum class Kind : std::uint16_t { hello = 1, answer, region, released, region_to_read, knock };
    std::uint64_t magic = expected_magic;
    std::uint16_t version = channel_version;
    Kind kind{};
    Verdict verdict = Verdict::accepted;  // answer
    std::uint64_t run = 0;                // hello, knock
    std::uint64_t token = 0;              // hello, knock
    std::uint32_t from = 0;
    std::uint32_t from_incarnation = 0;
    std::uint32_t to = 0;  // the receiver's number at the sender: its lane there
    std::uint32_t to_incarnation = 0;
    std::uint32_t peers = 0;       // hello, knock, answer: shape of the sender's inbox
    std::uint32_t ring_bytes = 0;  // hello, knock, answer
    std::uint32_t region = 0;      // region, released: its number
    std::uint32_t use = 0;         // region: of that number; released: that of the next region of that number
    std::uint64_t bytes = 0;       // region: its size
};
static_assert(sizeof(Packet) == 72);

struct Received {
    enum class What : std::uint8_t { nothing, packet, end, nonsense };
    What what = What::nothing;
    Packet packet;
    std::array<os::Descriptor, 2> fds;
    std::vector<std::byte> greeting;
};

/// An endpoint's name in the kernel's abstract namespace; it appears in no file system and goes with the socket.
struct SocketName {
    std::uint64_t word[2] = {};
};
SocketName random_name();

Result<os::Descriptor> listen_at(const SocketName& name);
struct Dialled {
    os::Descriptor socket;
    bool again = false;  // too many are waiting there: try later. Neither: nobody is there.
};
Dialled dial(const SocketName& name);
/// Not open: nobody is waiting.
os::Descriptor accept_one(const os::Descriptor& listener);

/// False: there is no room now, or the other side is gone, which receive() tells.
bool send_packet(const os::Descriptor& socket, const Packet& packet, std::array<int, 2> fds = {-1, -1},
                 Bytes greeting = {});
/// The next packet, if there is one; never waits.
Received receive_packet(const os::Descriptor& socket);

}  // namespace incast::transport::shm
