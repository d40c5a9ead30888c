// A UDP socket that sends and receives many datagrams with one system call: runs of equal size to one address as one
// piece that the kernel or the NIC cuts up (UDP_SEGMENT), and the same in the other direction (UDP_GRO), several such
// pieces per call (sendmmsg, recvmmsg).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

#include "datagram/address.h"
#include "datagram/faults.h"
#include "os/descriptor.h"

namespace incast::datagram {

/// The largest IP packet on the way to that address, as far as this host knows; 0: it knows no way.
std::uint32_t mtu_to(const Address& to);

class Socket {
public:
    /// What is to happen to the datagrams that are sent, for tests: by chance, from `seed`.
    explicit Socket(const FaultRates& faults = {}, std::uint64_t seed = 0);
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
    void add(const Address& to, std::span<const std::byte> bytes, bool is_stable) {
        if (faults_.any()) [[unlikely]] {
            faults_.pass({to, {bytes.begin(), bytes.end()}},
                         [this](const Letter& letter) { queue(letter.to, letter.bytes, false); });
        } else {
            queue(to, bytes, is_stable);
        }
    }
    /// One whose first bytes and whose rest lie apart; both stay until then.
    void add(const Address& to, std::span<const std::byte> head, std::span<const std::byte> rest) {
        if (faults_.any()) [[unlikely]] {
            std::vector<std::byte> whole(head.begin(), head.end());
            whole.insert(whole.end(), rest.begin(), rest.end());
            return add(to, whole, false);
        }
        begin(to, head.size() + rest.size());
        append(head);
        append(rest);
    }
    /// Of that size, so many go to the kernel as one piece.
    static constexpr std::size_t datagrams_per_piece(std::size_t bytes) {
        return std::clamp<std::size_t>(max_piece / bytes, 1, max_segments);
    }
    /// What cannot be sent counts as lost on its way.
    void send();

    /// Receives what is there, without waiting, at most one batch: true if there may be more. use(from, bytes).
    template <class Use>
    bool receive(Use&& use) {
        const bool has_more = fetch();
        while (const auto bytes = take())
            use(from(), *bytes);
        return has_more;
    }
    /// The same in steps, for who cannot use all of a batch at once: receives one when nothing of the last is left.
    bool fetch();
    /// The next datagram of the batch, which stays until the next fetch().
    std::optional<std::span<const std::byte>> take() {
        while (rest_.empty()) {
            if (taken_ == fetched_) return std::nullopt;
            rest_ = received_piece(taken_++, from_, segment_);
        }
        const auto one = rest_.first(std::min(segment_, rest_.size()));
        rest_ = rest_.subspan(one.size());
        return one;
    }
    [[nodiscard]] bool has_fetched() const { return !rest_.empty() || taken_ < fetched_; }
    /// Of the datagram that was taken last.
    [[nodiscard]] const Address& from() const { return from_; }
    /// Sending or receiving has told of datagrams that came back, since they were last taken.
    [[nodiscard]] bool has_refused() const { return has_refused_; }
    /// Datagrams that have come back because nobody is at their address: use(address, begin of the datagram).
    template <class Use>
    void take_refused(Use&& use) {
        has_refused_ = false;
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

    struct Letter {
        Address to;
        std::vector<std::byte> bytes;
    };

    void queue(const Address& to, std::span<const std::byte> bytes, bool is_stable);
    /// A datagram of so many bytes, which are appended next.
    void begin(const Address& to, std::size_t bytes);
    void append(std::span<const std::byte> bytes);
    void send_queued();
    std::span<const std::byte> received_piece(int index, Address& from, std::size_t& segment);
    std::size_t next_refused(Address& at, std::span<std::byte> bytes);
    void send_single(const Piece& piece);
    bool may_try_again(int error);

    os::Descriptor socket_;
    bool segments_ = true;
    Faults<Letter> faults_;
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
    int fetched_ = 0;  // pieces of the batch
    int taken_ = 0;
    std::span<const std::byte> rest_;  // of the piece that is being taken
    std::size_t segment_ = 0;
    Address from_;
    bool has_refused_ = false;
};

}  // namespace incast::datagram
