#include "softrio/udp/membership.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "softrio/options.h"
#include "softrio/shm/system.h"
#include "softrio/udp/enumerator.h"

namespace incast::softrio::udp {

namespace {

constexpr int slice_ms = 50;

bool is_ready(int fd, short what, int timeout_ms) {
    pollfd one{fd, what, 0};
    return ::poll(&one, 1, timeout_ms) == 1;
}

}  // namespace

Result<Membership> Membership::connect(const Address& host, int timeout_ms) {
    os::Descriptor socket(::socket(host.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_storage at{};
    const socklen_t bytes = fill(host, at);
    int error = socket.is_open() ? 0 : errno;
    if (socket.is_open() && ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&at), bytes) != 0) error = errno;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        error = is_ready(socket.fd(), POLLOUT, timeout_ms) ? 0 : ETIMEDOUT;
        if (error == 0) (void)::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error != 0) {
        return Error{"SoftRIO: no enumerating host at " + to_string(host) + ": " +
                     std::generic_category().message(error)};
    }
    Membership made;
    made.lines_ = Lines(std::move(socket));
    return made;
}

Address Membership::own_ip() const {
    Address own = lines_.local();
    own.port = 0;
    return own;
}

Result<std::uint32_t> Membership::join(std::uint32_t wanted, std::uint16_t udp_port, int timeout_ms,
                                       const Changed& changed) {
    answered_ = false;
    lines_.say(std::string(join_word) + " " + std::string(join_version) + " " + std::to_string(wanted) + " " +
               std::to_string(udp_port) + "\n");
    for (const std::int64_t until = shm::now_ms() + timeout_ms; !is_answered() && shm::now_ms() < until;) {
        (void)is_ready(fd(), POLLIN, slice_ms);
        take_in(changed);
    }
    if (destid_ != 0) return destid_;
    if (!refusal_.empty()) return Error{"SoftRIO: the enumerating host says: " + std::exchange(refusal_, {})};
    return Error{std::string("SoftRIO: the enumerating host ") +
                 (lines_.is_open() ? "does not answer" : "has closed the connection")};
}

void Membership::take_in(const Changed& changed) {
    if (lines_.is_open()) lines_.take([&](std::string_view line) { take_line(line, changed); });
}

void Membership::take_line(std::string_view line, const Changed& changed) {
    const std::string_view word = take_word(line);
    if (word == "refused") {
        refusal_ = line;
        answered_ = true;
        return;
    }
    const std::string_view first = take_word(line);
    const auto number = number_of(first, 0, UINT32_MAX);
    const auto destid = number.value_or(0);
    const bool is_id = destid != 0 && is_destid(destid);
    if (word == "synced" && number) {
        synced_ = *number;
    } else if (word == "you" && is_id) {
        destid_ = destid;
        answered_ = true;
    } else if (word == "gone" && is_id) {
        changed(destid, std::nullopt);
    } else if (word == "group" && is_id && take_group(destid, line)) {
        return;
    } else if (const auto at = parse_address(line); word == "there" && is_id && at) {
        changed(destid, *at);
    } else {
        lines_.close();  // no enumerating host, whatever it is
    }
}

bool Membership::take_group(std::uint32_t destid, std::string_view members) {
    MulticastGroup group{.destid = destid, .members = {}};
    while (!members.empty()) {
        const auto member = number_of(take_word(members), 1, max_destid);
        if (!member || !is_destid(*member)) return false;
        group.members.push_back(*member);
    }
    std::erase_if(groups_, [&](const MulticastGroup& each) { return each.destid == destid; });
    if (!group.members.empty()) groups_.push_back(std::move(group));
    return groups_.size() <= max_groups;
}

std::uint32_t Membership::sync() {
    lines_.say("sync " + std::to_string(++asked_) + "\n");
    return asked_;
}

void Membership::change(std::uint32_t wanted) {
    answered_ = false;
    lines_.say("change " + std::to_string(wanted) + "\n");
}

}  // namespace incast::softrio::udp
