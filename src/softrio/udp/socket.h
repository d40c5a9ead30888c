// A UDP socket that sends and receives many datagrams with one system call: runs of equal size to one address as one
// piece that the kernel or the NIC cuts up (UDP_SEGMENT), and the same in the other direction (UDP_GRO), several such
// pieces per call (sendmmsg, recvmmsg).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/prng.h"
#include "os/descriptor.h"
#include "softrio/udp/address.h"

namespace incast::softrio::udp {

class Socket {
public:
    /// `drop`: of a million datagrams, that many are not sent, for tests: by chance, from `seed`.
    Socket(std::uint32_t drop, std::uint64_t seed);
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    /// 0 or an errno.
    int bind(const Address& address);
    /// One that is bound, for adopt(). 0 or an errno.
    static int open(const Address& address, os::Descriptor& made);
    /// Goes on with that one instead, under the same descriptor number: whoever waits for it need not know. 0 or an
    /// errno.
    int adopt(os::Descriptor made);
    [[nodiscard]] int fd() const { return socket_.fd(); }
    /// Where it is bound.
    [[nodiscard]] std::uint16_t local_port() const;
    void close() { socket_.close(); }

    /// Adds a datagram to what send() sends. `is_stable`: the bytes stay until then; else they are copied.
    void add(const Address& to, std::span<const std::byte> bytes, bool is_stable);
    /// Of that size, so many go to the kernel as one piece.
    static constexpr std::size_t datagrams_per_piece(std::size_t bytes) {
        return std::clamp<std::size_t>(max_piece / bytes, 1, max_segments);
    }
    /// What cannot be sent counts as lost on its way.
    void send();

    /// Receives what is there, without waiting, at most one batch: true if there may be more. use(from, bytes).
    template <class Use>
    bool receive(Use&& use) {
        const int received = receive_batch();
        for (int index = 0; index < received; ++index) {
            Address from;
            std::size_t segment = 0;
            auto bytes = received_piece(index, from, segment);
            while (!bytes.empty()) {
                const auto one = bytes.first(std::min(segment, bytes.size()));
                use(from, one);
                bytes = bytes.subspan(one.size());
            }
        }
        return received == batch;
    }
    /// Datagrams that have come back because nobody is at their address: use(address, begin of the datagram).
    template <class Use>
    void take_refused(Use&& use) {
        Address at;
        std::array<std::byte, 64> bytes;
        while (const std::size_t size = next_refused(at, bytes))
            use(at, std::span<const std::byte>(bytes).first(size));
    }

private:
    static constexpr int batch = 4;
    static constexpr std::size_t max_segments = 64;
    static constexpr std::size_t max_piece = 65'000;
    static constexpr std::size_t max_pieces = 64;
    static constexpr std::size_t arena_bytes = 65'536;

    struct Control {
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> bytes;
    };
    struct Piece {
        sockaddr_storage to;
        socklen_t to_bytes;
        Address address;
        std::size_t first;    // of the vectors
        std::size_t vectors;  // datagrams that lie side by side are one
        std::size_t count;    // of datagrams
        std::size_t segment;
        std::size_t bytes;
        bool is_complete;  // its last segment is a shorter one
    };

    int receive_batch();
    std::span<const std::byte> received_piece(int index, Address& from, std::size_t& segment);
    std::size_t next_refused(Address& at, std::span<std::byte> bytes);
    void send_single(const Piece& piece);

    os::Descriptor socket_;
    bool segments_ = true;
    std::uint32_t drop_;
    base::Prng random_;
    std::vector<Piece> pieces_;
    std::vector<iovec> vectors_;
    std::vector<mmsghdr> headers_;
    std::vector<Control> controls_;
    std::unique_ptr<std::byte[]> arena_;
    std::size_t arena_used_ = 0;
    std::unique_ptr<std::byte[]> buffers_;
    std::array<mmsghdr, batch> in_headers_{};
    std::array<iovec, batch> in_vectors_{};
    std::array<sockaddr_storage, batch> in_from_{};
    struct InControl {
        alignas(cmsghdr) std::array<char, 64> bytes;
    };
    std::array<InControl, batch> in_controls_{};
};

}  // namespace incast::softrio::udp
