#include "softrio/udp/enumerator.h"

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include "softrio/options.h"
#include "softrio/shm/system.h"

namespace incast::softrio::udp {

namespace {

constexpr std::size_t max_members = 1024;
constexpr std::int64_t join_ms = 5000;  // who has not joined by then is dropped
constexpr int backlog = 128;

std::string there(std::uint32_t destid, const Address& at) {
    return "there " + std::to_string(destid) + " " + to_string(at) + "\n";
}

}  // namespace

Result<std::unique_ptr<Enumerator>> Enumerator::listen(const Address& at, std::uint32_t first, Observer observer) {
    transport::Descriptor listener(
        ::socket(at.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int one = 1;
    sockaddr_storage address{};
    socklen_t bytes = fill(at, address);
    if (!listener.is_open() || ::setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        ::bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
        ::listen(listener.fd(), backlog) != 0 ||
        ::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
        return Error{"SoftRIO: listening at " + to_string(at) + ": " + std::generic_category().message(errno)};
    }
    return std::unique_ptr<Enumerator>(
        new Enumerator(std::move(listener), address_of(address), first, std::move(observer)));
}

Enumerator::Enumerator(transport::Descriptor listener, const Address& at, std::uint32_t first, Observer observer)
    : listener_(std::move(listener)), address_(at), first_(first), observer_(std::move(observer)) {}

Enumerator::~Enumerator() = default;

void Enumerator::serve(int timeout_ms) {
    std::vector<pollfd> wanted{{listener_.fd(), POLLIN, 0}};
    for (const auto& [fd, member] : members_)
        wanted.push_back({fd, POLLIN, 0});
    if (::poll(wanted.data(), wanted.size(), timeout_ms) > 0) {
        for (const pollfd& each : wanted) {
            const auto found = members_.find(each.fd);
            if (each.revents == 0 || found == members_.end()) continue;
            Member& member = found->second;
            member.lines.take([&](std::string_view line) { take_line(member, line); });
        }
    }
    drop_ended();  // before their descriptors are others'
    if (wanted.front().revents != 0) accept();
}

void Enumerator::accept() {
    transport::Descriptor made(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!made.is_open()) return;
    const int fd = made.fd();
    Member& member = members_[fd];
    member.lines = Lines(std::move(made));
    member.since_ms = shm::now_ms();
    if (members_.size() > max_members) refuse(member, "the fabric is full");
}

void Enumerator::take_line(Member& member, std::string_view line) {
    if (!member.lines.is_open()) return;
    const std::string_view word = take_word(line);
    if (member.destid == 0) {
        if (word == join_word && take_word(line) == join_version) {
            join(member, line);
        } else {
            refuse(member, "no endpoint that this host understands");
        }
    } else if (word == "change") {
        change(member, line);
    } else if (word == "sync" && number_of(line, 0, UINT32_MAX)) {
        member.lines.say("synced " + std::string(line) + "\n");
    } else {
        refuse(member, "no request that this host understands");
    }
}

void Enumerator::join(Member& member, std::string_view line) {
    const std::string_view wanted = take_word(line);
    const auto port = number_of(line, 1, UINT16_MAX);
    if (!port) return refuse(member, "no UDP port");
    const std::uint32_t destid = choose(member, wanted);
    if (destid == 0) return;
    member.at = member.lines.remote();
    member.at.port = static_cast<std::uint16_t>(*port);
    std::string all;
    for (const auto& [other, at] : endpoints_)
        all += there(other, at);
    place(member, destid);
    member.lines.say(all + "you " + std::to_string(destid) + "\n");
}

void Enumerator::change(Member& member, std::string_view wanted) {
    const std::uint32_t destid = choose(member, wanted);
    if (destid == 0) return;
    leave(member);
    place(member, destid);
    member.lines.say("you " + std::to_string(destid) + "\n");
}

std::uint32_t Enumerator::choose(Member& member, std::string_view wanted) {
    const auto asked = number_of(wanted, 0, max_destid);
    const auto is_free = [&](std::uint32_t id) { return is_destid(id) && !endpoints_.contains(id); };
    std::uint32_t destid = asked.value_or(0);
    if (asked && destid == 0) {
        for (destid = first_; destid <= max_destid && !is_free(destid);)
            ++destid;
    }
    if (asked && is_free(destid)) return destid;
    // It may ask for another one, so the connection stays.
    member.lines.say(asked ? "refused destination id " + std::to_string(destid) + " is taken\n"
                           : std::string("refused no destination id: 1..65534, and not 255\n"));
    return 0;
}

void Enumerator::place(Member& member, std::uint32_t destid) {
    member.destid = destid;
    endpoints_.emplace(destid, member.at);
    tell_others(member, there(destid, member.at));
    observer_.changed(destid, &member.at);
}

void Enumerator::leave(const Member& member) {
    endpoints_.erase(member.destid);
    tell_others(member, "gone " + std::to_string(member.destid) + "\n");
    observer_.changed(member.destid, nullptr);
}

void Enumerator::tell_others(const Member& member, const std::string& line) {
    for (auto& [fd, other] : members_) {
        if (&other != &member && other.destid != 0) other.lines.say(line);
    }
}

void Enumerator::refuse(Member& member, const std::string& why) {
    observer_.refused(to_string(member.lines.remote()) + " was refused: " + why);
    member.lines.say("refused " + why + "\n");
    member.lines.close();
}

void Enumerator::drop_ended() {
    const std::int64_t now = shm::now_ms();
    for (auto each = members_.begin(); each != members_.end();) {
        Member& member = each->second;
        if (member.lines.is_open() && member.destid == 0 && now - member.since_ms > join_ms)
            refuse(member, "it did not say what it wants");
        if (member.lines.is_open()) {
            ++each;
            continue;
        }
        const Member ended{Lines(), member.at, member.destid, 0};
        each = members_.erase(each);
        if (ended.destid != 0) leave(ended);
    }
}

}  // namespace incast::softrio::udp
