#include "datagram/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/udp.h>
#include <unistd.h>

namespace incast::datagram {

namespace {

constexpr std::size_t buffer_bytes = 65'536;
constexpr int wanted_buffer_bytes = 8 << 20;
constexpr int max_tries = 64;

void set(const os::Descriptor& socket, int level, int option, int value) {
    (void)::setsockopt(socket.fd(), level, option, &value, sizeof value);
}

}  // namespace

std::uint32_t mtu_to(const Address& to) {
    const os::Descriptor probe(::socket(to.is_v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage at;
    const socklen_t bytes = fill(to, at);
    int mtu = 0;
    socklen_t size = sizeof mtu;
    if (!probe.is_open() || ::connect(probe.fd(), reinterpret_cast<const sockaddr*>(&at), bytes) != 0 ||
        ::getsockopt(probe.fd(), to.is_v6 ? IPPROTO_IPV6 : IPPROTO_IP, to.is_v6 ? IPV6_MTU : IP_MTU, &mtu, &size) !=
            0) {
        return 0;
    }
    return static_cast<std::uint32_t>(std::max(mtu, 0));
}

Socket::Socket(const FaultRates& faults, std::uint64_t seed)
    : faults_(faults, seed),
      arena_(std::make_unique_for_overwrite<std::byte[]>(arena_bytes)),
      buffers_(std::make_unique_for_overwrite<std::byte[]>(batch * buffer_bytes)) {
    pieces_.reserve(max_pieces);
    vectors_.reserve(2 * max_pieces * max_segments);
    headers_.reserve(max_pieces);
    controls_.resize(max_pieces);
    for (std::size_t index = 0; index < batch; ++index) {
        in_vectors_[index] = {buffers_.get() + index * buffer_bytes, buffer_bytes};
        in_headers_[index].msg_hdr.msg_name = &in_from_[index];
        in_headers_[index].msg_hdr.msg_iov = &in_vectors_[index];
        in_headers_[index].msg_hdr.msg_iovlen = 1;
        in_headers_[index].msg_hdr.msg_control = in_controls_[index].bytes.data();
    }
}

int Socket::open(const Address& address, os::Descriptor& made) {
    made = os::Descriptor(::socket(address.is_v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!made.is_open()) return errno;
    set(made, SOL_UDP, UDP_GRO, 1);
    set(made, address.is_v6 ? SOL_IPV6 : SOL_IP, address.is_v6 ? IPV6_RECVERR : IP_RECVERR, 1);
    set(made, SOL_SOCKET, SO_SNDBUF, wanted_buffer_bytes);
    set(made, SOL_SOCKET, SO_RCVBUF, wanted_buffer_bytes);
    set(made, SOL_SOCKET, SO_SNDBUFFORCE, wanted_buffer_bytes);
    set(made, SOL_SOCKET, SO_RCVBUFFORCE, wanted_buffer_bytes);
    sockaddr_storage at;
    const socklen_t bytes = fill(address, at);
    if (::bind(made.fd(), reinterpret_cast<const sockaddr*>(&at), bytes) != 0) return errno;
    return 0;
}

int Socket::bind(const Address& address) {
    os::Descriptor made;
    const int error = open(address, made);
    return error != 0 ? error : adopt(std::move(made));
}

int Socket::adopt(os::Descriptor made) {
    if (socket_.is_open()) return ::dup3(made.fd(), socket_.fd(), O_CLOEXEC) < 0 ? errno : 0;
    socket_ = std::move(made);
    return 0;
}

std::uint16_t Socket::local_port() const {
    sockaddr_storage at{};
    socklen_t bytes = sizeof at;
    return ::getsockname(fd(), reinterpret_cast<sockaddr*>(&at), &bytes) == 0 ? address_of(at).port : 0;
}

void Socket::queue(const Address& to, std::span<const std::byte> bytes, bool is_stable) {
    if (!is_stable && arena_used_ + bytes.size() > arena_bytes) send_queued();
    begin(to, bytes.size());
    if (!is_stable) {
        std::memcpy(arena_.get() + arena_used_, bytes.data(), bytes.size());
        bytes = {arena_.get() + arena_used_, bytes.size()};
        arena_used_ += bytes.size();
    }
    append(bytes);
}

void Socket::begin(const Address& to, std::size_t bytes) {
    const auto fits = [&](const Piece& last) {
        return last.address == to && !last.is_complete && bytes <= last.segment && last.count < max_segments &&
               last.bytes + bytes <= max_piece;
    };
    if (pieces_.empty() || !fits(pieces_.back())) {
        if (pieces_.size() == max_pieces) send_queued();
        Piece& made = pieces_.emplace_back();
        made.to_bytes = fill(to, made.to);
        made.address = to;
        made.first = vectors_.size();
        made.vectors = 0;
        made.count = 0;
        made.segment = bytes;
        made.bytes = 0;
    }
    Piece& piece = pieces_.back();
    ++piece.count;
    piece.bytes += bytes;
    piece.is_complete = bytes < piece.segment;
}

void Socket::append(std::span<const std::byte> bytes) {
    Piece& piece = pieces_.back();
    auto* begin = const_cast<std::byte*>(bytes.data());
    if (iovec* last = piece.vectors == 0 ? nullptr : &vectors_.back();
        last != nullptr && static_cast<std::byte*>(last->iov_base) + last->iov_len == begin) {
        last->iov_len += bytes.size();
    } else {
        vectors_.push_back({begin, bytes.size()});
        ++piece.vectors;
    }
}

void Socket::send_single(const Piece& piece) {
    const std::span<iovec> vectors = std::span(vectors_).subspan(piece.first, piece.vectors);
    std::size_t used = 0;  // of the first vector
    for (std::size_t index = 0, left = piece.bytes; left > 0;) {
        std::array<iovec, 2> parts;  // a datagram has two at most
        std::size_t count = 0;
        for (std::size_t wanted = std::min(piece.segment, left); wanted > 0;) {
            const std::size_t now = std::min(wanted, vectors[index].iov_len - used);
            parts[count++] = {static_cast<std::byte*>(vectors[index].iov_base) + used, now};
            wanted -= now;
            left -= now;
            used += now;
            if (used < vectors[index].iov_len) continue;
            used = 0;
            ++index;
        }
        msghdr header{};
        header.msg_name = const_cast<sockaddr_storage*>(&piece.to);
        header.msg_namelen = piece.to_bytes;
        header.msg_iov = parts.data();
        header.msg_iovlen = count;
        for (int tries = 0; tries < max_tries; ++tries)
            if (::sendmsg(socket_.fd(), &header, 0) >= 0 || !may_try_again(errno)) break;
    }
}

void Socket::send() {
    if (faults_.any()) [[unlikely]]
        faults_.flush([this](const Letter& letter) { queue(letter.to, letter.bytes, false); });
    send_queued();
}

void Socket::send_queued() {
    headers_.clear();
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
        Piece& piece = pieces_[index];
        mmsghdr& header = headers_.emplace_back();
        header = {};
        header.msg_hdr.msg_name = &piece.to;
        header.msg_hdr.msg_namelen = piece.to_bytes;
        header.msg_hdr.msg_iov = vectors_.data() + piece.first;
        header.msg_hdr.msg_iovlen = piece.vectors;
        if (piece.count == 1) continue;
        header.msg_hdr.msg_control = controls_[index].bytes.data();
        header.msg_hdr.msg_controllen = controls_[index].bytes.size();
        cmsghdr* control = CMSG_FIRSTHDR(&header.msg_hdr);
        control->cmsg_level = SOL_UDP;
        control->cmsg_type = UDP_SEGMENT;
        control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
        const auto segment = static_cast<std::uint16_t>(piece.segment);
        std::memcpy(CMSG_DATA(control), &segment, sizeof segment);
    }
    int tries = 0;
    for (std::size_t done = 0; done < headers_.size();) {
        if (!segments_) {
            send_single(pieces_[done++]);
            continue;
        }
        const int sent =
            ::sendmmsg(socket_.fd(), headers_.data() + done, static_cast<unsigned>(headers_.size() - done), 0);
        if (sent > 0) {
            done += static_cast<std::size_t>(sent);
            tries = 0;
        } else if (!may_try_again(errno) || ++tries == max_tries) {
            // EIO: the device computes no checksums, so that the kernel will not cut. EINVAL, EMSGSIZE: nor does it
            // where the route's MTU is smaller; single datagrams it fragments.
            if (errno == EAGAIN) {  // a socket with a time-out: the link takes no more for now
                break;
            } else if (errno == EIO) {
                segments_ = false;
            } else if (errno == EINVAL || errno == EMSGSIZE) {
                send_single(pieces_[done++]);
            } else {
                ++done;
            }
        }
    }
    pieces_.clear();
    vectors_.clear();
    arena_used_ = 0;
}

bool Socket::fetch() {
    for (std::size_t index = 0; index < batch; ++index) {
        in_headers_[index].msg_hdr.msg_namelen = sizeof(sockaddr_storage);
        in_headers_[index].msg_hdr.msg_controllen = in_controls_[index].bytes.size();
    }
    taken_ = 0;
    fetched_ = std::max(0, ::recvmmsg(socket_.fd(), in_headers_.data(), batch, MSG_DONTWAIT, nullptr));
    if (fetched_ > 0) return fetched_ == batch;
    // What was refused is told before what was received.
    return errno != EAGAIN && may_try_again(errno);
}

bool Socket::may_try_again(int error) {
    has_refused_ = has_refused_ || error == ECONNREFUSED;
    return error == ECONNREFUSED || error == EINTR;
}

std::span<const std::byte> Socket::received_piece(int index, Address& from, std::size_t& segment) {
    const auto at = static_cast<std::size_t>(index);
    msghdr& header = in_headers_[at].msg_hdr;
    from = address_of(in_from_[at]);
    const std::size_t bytes = in_headers_[at].msg_len;
    segment = std::max<std::size_t>(bytes, 1);
    for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
        if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_GRO) continue;
        int size = 0;
        std::memcpy(&size, CMSG_DATA(control), sizeof size);
        if (size > 0) segment = static_cast<std::size_t>(size);
    }
    return {buffers_.get() + at * buffer_bytes, bytes};
}

std::size_t Socket::next_refused(Address& at, std::span<std::byte> bytes) {
    while (true) {
        sockaddr_storage to{};
        iovec vector{bytes.data(), bytes.size()};
        msghdr header{};
        header.msg_name = &to;
        header.msg_namelen = sizeof to;
        header.msg_iov = &vector;
        header.msg_iovlen = 1;
        alignas(cmsghdr) std::array<char, 256> space;
        header.msg_control = space.data();
        header.msg_controllen = space.size();
        const ssize_t size = ::recvmsg(socket_.fd(), &header, MSG_ERRQUEUE | MSG_DONTWAIT);
        if (size < 0) return 0;
        for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
            const bool is_ours = (one->cmsg_level == SOL_IP && one->cmsg_type == IP_RECVERR) ||
                                 (one->cmsg_level == SOL_IPV6 && one->cmsg_type == IPV6_RECVERR);
            sock_extended_err error{};
            if (!is_ours) continue;
            std::memcpy(&error, CMSG_DATA(one), sizeof error);
            if (error.ee_errno != ECONNREFUSED || size == 0) continue;
            at = address_of(to);
            return static_cast<std::size_t>(size);
        }
    }
}

}  // namespace incast::datagram
