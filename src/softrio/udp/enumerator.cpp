#include "softrio/udp/enumerator.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "softrio/options.h"
#include "softrio/shm/system.h"

namespace incast::softrio::udp {

namespace {

constexpr std::int64_t join_ms = 5000;  // who has not joined by then is dropped
constexpr int backlog = 128;
constexpr std::ptrdiff_t max_undecided = 64;  // that have not joined; then whoever has been silent longest makes room

std::string line_of(std::uint32_t group, const std::vector<std::uint32_t>& members) {
    std::string line = "group " + std::to_string(group);
    for (const std::uint32_t member : members)
        line += " " + std::to_string(member);
    return line + "\n";
}

}  // namespace

Result<std::unique_ptr<Enumerator>> Enumerator::listen(const Address& at, std::uint32_t first, Observer observer,
                                                       std::unique_ptr<DataPlane> plane) {
    os::Descriptor listener(::socket(at.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    os::Descriptor poll(::epoll_create1(EPOLL_CLOEXEC));
    const int one = 1;
    sockaddr_storage address{};
    socklen_t bytes = fill(at, address);
    if (!listener.is_open() || !poll.is_open() ||
        ::setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        ::bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
        ::listen(listener.fd(), backlog) != 0 ||
        ::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
        return Error{"SoftRIO: listening at " + to_string(at) + ": " + std::generic_category().message(errno)};
    }
    return std::unique_ptr<Enumerator>(new Enumerator(std::move(listener), std::move(poll), address_of(address), first,
                                                      std::move(observer), std::move(plane)));
}

Enumerator::Enumerator(os::Descriptor listener, os::Descriptor poll, const Address& at, std::uint32_t first,
                       Observer observer, std::unique_ptr<DataPlane> plane)
    : listener_(std::move(listener)),
      poll_(std::move(poll)),
      address_(at),
      first_(first),
      observer_(std::move(observer)),
      plane_(std::move(plane)) {
    watch(listener_.fd());
    if (plane_ != nullptr) watch(plane_->fd());
}

Enumerator::~Enumerator() = default;

void Enumerator::watch(int fd) {
    epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
    (void)::epoll_ctl(poll_.fd(), EPOLL_CTL_ADD, fd, &wanted);
}

Result<Ok> Enumerator::program(RoutingTable table) {
    for (const MulticastGroup& each : table.groups) {
        if (endpoints_.contains(each.destid))
            return Error{"[multicast] " + std::to_string(each.destid) + ": an endpoint has that destination id"};
    }
    std::string lines;
    for (const MulticastGroup& each : std::exchange(groups_, std::move(table.groups))) {
        if (group(each.destid) == nullptr) lines += line_of(each.destid, {});
    }
    for (const MulticastGroup& each : groups_)
        lines += line_of(each.destid, each.members);
    for (auto& [fd, member] : members_) {
        if (member.destid != 0) member.lines.say(lines);
    }
    if (plane_ != nullptr) plane_->program(std::move(table));
    return Ok{};
}

void Enumerator::serve(int timeout_ms) {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(poll_.fd(), events.data(), events.size(), timeout_ms);
    bool has_callers = false;
    for (const epoll_event& each : std::span(events).first(static_cast<std::size_t>(std::max(count, 0)))) {
        const auto found = members_.find(each.data.fd);
        if (found != members_.end()) {
            Member& member = found->second;
            member.lines.take([&](std::string_view line) { take_line(member, line); });
        } else if (each.data.fd == listener_.fd()) {
            has_callers = true;
        } else if (plane_ != nullptr && each.data.fd == plane_->fd()) {
            plane_->forward();
        }
    }
    drop_ended();  // before their descriptors are others'
    if (has_callers) accept();
}

void Enumerator::accept() {
    os::Descriptor made(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!made.is_open()) return;
    const int fd = made.fd();
    Member& member = members_[fd];
    member.lines = Lines(std::move(made));
    member.since_ms = shm::now_ms();
    watch(fd);
    if (endpoints_.size() >= max_endpoints) return refuse(member, "the fabric is full");
    const auto is_undecided = [](const auto& each) { return each.second.destid == 0 && each.second.lines.is_open(); };
    if (std::ranges::count_if(members_, is_undecided) <= max_undecided) return;
    const auto since = [&](const auto& each) { return is_undecided(each) ? each.second.since_ms : INT64_MAX; };
    refuse(std::ranges::min_element(members_, {}, since)->second, "it did not say what it wants, and others wait");
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
    const auto seen = link(member, destid);
    if (!seen) return refuse(member, seen.error().message);
    std::string all;
    for (const auto& [other, at] : endpoints_)
        all += there(member, other, at);
    for (const MulticastGroup& each : groups_)
        all += line_of(each.destid, each.members);
    place(member, destid, *seen);
    member.lines.say(all + "you " + std::to_string(destid) + "\n");
}

void Enumerator::change(Member& member, std::string_view wanted) {
    const std::uint32_t destid = choose(member, wanted);
    if (destid == 0) return;
    const auto seen = link(member, destid);
    if (!seen) return member.lines.say("refused " + seen.error().message + "\n");
    leave(member);
    place(member, destid, *seen);
    member.lines.say("you " + std::to_string(destid) + "\n");
}

std::uint32_t Enumerator::choose(Member& member, std::string_view wanted) {
    const auto asked = number_of(wanted, 0, max_destid);
    const auto is_free = [&](std::uint32_t id) {
        return is_destid(id) && !endpoints_.contains(id) && group(id) == nullptr;
    };
    std::uint32_t destid = asked.value_or(0);
    if (asked && destid == 0) {
        for (destid = first_; destid <= max_destid && !is_free(destid);)
            ++destid;
    }
    if (asked && is_free(destid)) return destid;
    // It may ask for another one, so the connection stays.
    const char* why = group(destid) == nullptr ? " is taken\n" : " is a multicast group\n";
    member.lines.say(asked ? "refused destination id " + std::to_string(destid) + why
                           : std::string("refused no destination id: 1..65534, and not 255\n"));
    return 0;
}

Result<Address> Enumerator::link(const Member& member, std::uint32_t destid) {
    if (plane_ == nullptr) return member.at;
    const auto port = member.destid == 0 ? plane_->plug(destid, member.at) : plane_->rename(member.destid, destid);
    if (!port) return port.error();
    Address seen = address_;
    seen.port = *port;
    return seen;
}

std::string Enumerator::there(const Member& member, std::uint32_t destid, const Address& seen) const {
    // The host has the address by which it was reached: what it listens on may stand for several.
    Address at = plane_ == nullptr ? seen : member.lines.local();
    at.port = seen.port;
    return "there " + std::to_string(destid) + " " + to_string(at) + "\n";
}

const MulticastGroup* Enumerator::group(std::uint32_t destid) const {
    const auto found = std::ranges::find(groups_, destid, &MulticastGroup::destid);
    return found == groups_.end() ? nullptr : &*found;
}

void Enumerator::place(Member& member, std::uint32_t destid, const Address& seen) {
    member.destid = destid;
    endpoints_.emplace(destid, seen);
    for (auto& [fd, other] : members_) {
        if (&other != &member && other.destid != 0) other.lines.say(there(other, destid, seen));
    }
    observer_.changed(destid, &member.at);
}

void Enumerator::leave(const Member& member) {
    endpoints_.erase(member.destid);
    for (auto& [fd, other] : members_) {
        if (&other != &member && other.destid != 0) other.lines.say("gone " + std::to_string(member.destid) + "\n");
    }
    observer_.changed(member.destid, nullptr);
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
        members_.erase(each);
        if (ended.destid != 0) {
            leave(ended);
            if (plane_ != nullptr) plane_->unplug(ended.destid);
        }
        each = members_.begin();  // telling them may have ended others
    }
}

}  // namespace incast::softrio::udp
