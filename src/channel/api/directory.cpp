#include "channel/api/directory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/handing.h"

namespace incast::channel::api {

namespace {

constexpr std::string_view abstract_prefix = "incast-channel/";
constexpr std::size_t most_callers = 64;
constexpr std::size_t most_accepted = 64;  // at a time: a flood of callers must not keep the hub from its peers
constexpr Time caller_deadline = 2 * ps_per_s;
constexpr Time retry_after = 2 * ps_per_ms;
constexpr std::uint64_t doors_id = 0;
constexpr std::uint64_t calls_id = 1;
constexpr std::uint64_t callers_id = 2;
constexpr unsigned kind_shift = 32;

SocketName unix_name(const Address& address) {
    SocketName name;
    auto& made = reinterpret_cast<sockaddr_un&>(name.storage);
    made.sun_family = AF_UNIX;
    // An abstract name begins with a zero, a path ends with one.
    std::string text = address.is_path() ? address.host : '\0' + std::string(abstract_prefix) + address.host;
    std::ranges::copy(text, made.sun_path);
    name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (address.is_path() ? 1 : 0));
    return name;
}

int new_socket(const SocketName& name) {
    return ::socket(name.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/// Who listened at a path and ended leaves it behind.
bool is_left_behind(const SocketName& name) {
    const os::Descriptor probe(new_socket(name));
    return probe.is_open() && ::connect(probe.fd(), name.get(), name.size) != 0 && errno == ECONNREFUSED;
}

std::string of_another_version(char version) {
    return std::string("the library there speaks version ") + version + " of ring channels, this one version " +
           card_version();
}

std::string hex(const HubId& id) {
    std::string text;
    for (const std::byte each : id) {
        constexpr std::string_view digits = "0123456789abcdef";
        text += digits[static_cast<unsigned>(each) >> 4U];
        text += digits[static_cast<unsigned>(each) & 15U];
    }
    return text;
}

/// With `way`, if that is open.
bool say(const os::Descriptor& socket, std::vector<std::byte> bytes, const os::Descriptor& way = {}) {
    const std::array parts{iovec{bytes.data(), bytes.size()}};
    const int fd = way.fd();
    return os::send_handing(socket.fd(), parts, std::span(&fd, way.is_open() ? 1U : 0U), MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
}

/// False: there is nothing more, and nothing will come; an errno, or 0 at the end.
bool take(const os::Descriptor& socket, std::vector<std::byte>& into, os::Descriptor& way, int& error) {
    std::array<std::byte, 4096> bytes;
    for (;;) {
        const std::array parts{iovec{bytes.data(), bytes.size()}};
        const ssize_t count =
            os::receive_handed(socket.fd(), parts, std::span(&way, way.is_open() ? 0U : 1U), MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        error = count < 0 ? errno : 0;
        if (count <= 0) return error == EAGAIN;
        into.insert(into.end(), bytes.begin(), bytes.begin() + count);
        if (into.size() > sizeof(Card) + max_address_bytes) return true;  // more than any card: read_card() says so
    }
}

}  // namespace

std::vector<SocketName> look_up(const Address& address, bool to_listen) {
    if (address.scheme == Scheme::shm) return {unix_name(address)};
    addrinfo hints{};
    hints.ai_family = address.is_any_host ? AF_INET : AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = (to_listen ? AI_PASSIVE : 0) | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(address.port);
    const int code = ::getaddrinfo(address.is_any_host ? nullptr : address.host.c_str(), port.c_str(), &hints, &found);
    if (code != 0) {
        throw Failure{code == EAI_MEMORY ? ENOMEM : EINVAL,
                      "'" + address.text() + "': the host: " + std::string(::gai_strerror(code))};
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
    std::vector<SocketName> names;
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
        SocketName name;
        std::memcpy(&name.storage, at->ai_addr, at->ai_addrlen);
        name.size = at->ai_addrlen;
        names.push_back(name);
    }
    return names;
}

std::string own_host(int socket) {
    SocketName name;
    name.size = sizeof name.storage;
    std::array<char, NI_MAXHOST> host{};
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&name.storage), &name.size) != 0 ||
        ::getnameinfo(name.get(), name.size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
        return {};
    return host.data();
}

Door open_door(const Address& address) {
    Door door{.socket = {}, .address = address};
    if (address.scheme == Scheme::shm && address.is_any_host) {
        door.address.host = hex(random_id());
        door.address.is_any_host = false;
    }
    int error = EADDRNOTAVAIL;
    for (const SocketName& name : look_up(door.address, true)) {
        door.socket = os::Descriptor(new_socket(name));
        if (!door.socket.is_open()) throw system_failure(errno, address.text());
        const int on = 1;
        // A port that an earlier process used is free at once.
        if (address.scheme != Scheme::shm)
            (void)::setsockopt(door.socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        int bound = ::bind(door.socket.fd(), name.get(), name.size);
        if (bound != 0 && errno == EADDRINUSE && address.is_path() && is_left_behind(name)) {
            (void)::unlink(address.host.c_str());
            bound = ::bind(door.socket.fd(), name.get(), name.size);
        }
        if (bound == 0 && ::listen(door.socket.fd(), SOMAXCONN) == 0) {
            if (address.scheme != Scheme::shm) {
                SocketName real;
                real.size = sizeof real.storage;
                (void)::getsockname(door.socket.fd(), reinterpret_cast<sockaddr*>(&real.storage), &real.size);
                // sin_port and sin6_port lie at the same place.
                door.address.port = ntohs(reinterpret_cast<const sockaddr_in&>(real.storage).sin_port);
                if (!address.is_any_host) door.address.host = own_host(door.socket.fd());
            }
            return door;
        }
        error = errno;
    }
    throw system_failure(error, address.text());
}

Directory::~Directory() {
    while (!open_.empty())
        close(open_.begin()->first);
}

void Directory::open(Door door, std::uint32_t port) {
    if (!poller_.add(door.socket, EPOLLIN, first_id_ + (doors_id << kind_shift) + port))
        throw system_failure(errno, door.address.text());
    open_.emplace(port, Open{std::move(door), port});
}

void Directory::close(std::uint32_t port) {
    const auto found = open_.find(port);
    if (found == open_.end()) return;
    if (found->second.door.address.is_path()) (void)::unlink(found->second.door.address.host.c_str());
    open_.erase(found);
}

void Directory::accept_all(Open& open, Time now) {
    for (std::size_t count = 0; count < most_accepted; ++count) {
        os::Descriptor socket(::accept4(open.door.socket.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.is_open()) {
            if (!os::Spare::is_needed_for(errno)) return;
            spare_.turn_away(open.door.socket, [&](const os::Descriptor& caller) {
                (void)say(caller, to_bytes({.what = Card::What::again}, {}));
            });
            return;
        }
        const WholeCard card = offer_(socket, open.door.address, open.port);
        if (!say(socket, to_bytes(card.card, card.address), card.way) || !has_answers_) continue;
        if (callers_.size() == most_callers) drop_caller(callers_.begin()->first);
        const std::uint32_t number = ++next_number_;
        if (poller_.add(socket, EPOLLIN | EPOLLRDHUP, first_id_ + (callers_id << kind_shift) + number))
            callers_.emplace(number, Caller{std::move(socket), {}, now + caller_deadline});
    }
}

void Directory::hear(std::uint32_t number, Caller& caller) {
    int error = 0;
    os::Descriptor none;
    const bool is_open = take(caller.socket, caller.received, none, error);
    Read read = read_card(caller.received);
    if (read.whole && read.whole->card.what == Card::What::answer)
        events_.push_back({Event::What::answered, number, std::move(*read.whole), {}});
    else if (!is_open || read.is_wrong || read.whole)
        drop_caller(number);
}

void Directory::drop_caller(std::uint32_t number) {
    const auto found = callers_.find(number);
    if (found != callers_.end()) callers_.erase(found);
}

void Directory::reply(std::uint32_t caller, const Card& card, const Blob& address) {
    const auto found = callers_.find(caller);
    if (found == callers_.end()) return;
    (void)say(found->second.socket, to_bytes(card, address));
    callers_.erase(found);
}

std::uint32_t Directory::call(const Address& address, Time now) {
    Call call{.socket = {}, .names = look_up(address, false), .text = address.text(), .received = {}};
    const std::uint32_t number = ++next_number_;
    Call& made = calls_.emplace(number, std::move(call)).first->second;
    start(number, made, now);
    return number;
}

std::uint32_t Directory::call_by(os::Descriptor socket, const Address& address) {
    const std::uint32_t number = ++next_number_;
    if (!poller_.add(socket, EPOLLIN | EPOLLRDHUP, first_id_ + (calls_id << kind_shift) + number))
        throw system_failure(errno, address.text());
    calls_.emplace(number, Call{.socket = std::move(socket), .names = {}, .text = address.text(), .received = {}});
    return number;
}

void Directory::start(std::uint32_t number, Call& call, Time now) {
    call.again_at = time_never;
    const SocketName& name = call.names.front();
    call.socket = os::Descriptor(new_socket(name));
    if (!call.socket.is_open()) return end(number, errno, "");
    if (::connect(call.socket.fd(), name.get(), name.size) != 0 && errno != EINPROGRESS)
        return failed(number, call, errno, now);
    if (!poller_.add(call.socket, EPOLLIN | EPOLLRDHUP, first_id_ + (calls_id << kind_shift) + number))
        end(number, errno, "");
}

void Directory::failed(std::uint32_t number, Call& call, int error, Time now) {
    call.socket.close();
    if (error == EAGAIN) {  // too many wait at that Unix socket
        call.again_at = now + retry_after;
    } else if (call.names.size() > 1) {
        call.names.erase(call.names.begin());
        start(number, call, now);
    } else {
        const bool is_path = call.names.front().get()->sa_family == AF_UNIX && error == ENOENT;
        end(number, is_path ? ECONNREFUSED : error, is_path || error == ECONNREFUSED ? "nobody listens there" : "");
    }
}

void Directory::end(std::uint32_t number, int error, const std::string& why) {
    const auto found = calls_.find(number);
    const std::string said = why.empty() ? std::generic_category().message(error) : why;
    events_.push_back({Event::What::failed, number, {}, {error, found->second.text + ": " + said}});
    calls_.erase(found);
}

void Directory::hear(std::uint32_t number, Call& call, Time now) {
    int error = 0;
    const bool is_open = take(call.socket, call.received, call.way, error);
    Read read = read_card(call.received);
    if (!read.whole) {
        if (is_open && !read.is_wrong) return;
        if (read.other_version) return end(number, EPROTO, of_another_version(*read.other_version));
        if (error != 0 && call.received.empty() && !call.names.empty()) return failed(number, call, error, now);
        return end(number, EPROTO, "what answers there is no listener of ring channels");
    }
    const Card::What expected = call.is_answered ? Card::What::reply : Card::What::offer;
    if (read.whole->card.what == Card::What::failed) {
        const auto why = static_cast<int>(std::min(read.whole->card.port, 4095U));
        return end(number, why == 0 ? EPROTO : why, why == ECONNREFUSED ? "nobody listens there" : "");
    }
    if (read.whole->card.what == Card::What::again) {
        events_.push_back({Event::What::again, number, {}, {}});
        calls_.erase(number);
        return;
    }
    if (read.whole->card.what != expected)
        return end(number, EPROTO, "what answers there is no listener of ring channels");
    call.received.erase(
        call.received.begin(),
        call.received.begin() + static_cast<std::ptrdiff_t>(sizeof(Card) + read.whole->card.address_bytes));
    const Event::What what = call.is_answered ? Event::What::replied : Event::What::offered;
    read.whole->way = std::move(call.way);
    events_.push_back({what, number, std::move(*read.whole), {}});
    if (call.is_answered || !has_answers_) calls_.erase(number);
}

void Directory::answer(std::uint32_t number, const Card& card, const Blob& address) {
    const auto found = calls_.find(number);
    if (found == calls_.end()) return;
    found->second.is_answered = true;
    if (!say(found->second.socket, to_bytes(card, address))) end(number, ECONNRESET, "");
}

void Directory::give_up(std::uint32_t call) {
    calls_.erase(call);
    std::erase_if(events_,
                  [&](const Event& each) { return each.what != Event::What::answered && each.number == call; });
}

std::optional<Directory::Event> Directory::next() {
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
}

void Directory::ready(std::uint64_t id, Time now) {
    const std::uint64_t kind = (id - first_id_) >> kind_shift;
    const auto number = static_cast<std::uint32_t>(id - first_id_);
    if (kind == doors_id) {
        if (const auto found = open_.find(number); found != open_.end()) accept_all(found->second, now);
    } else if (kind == calls_id) {
        if (const auto found = calls_.find(number); found != calls_.end()) hear(number, found->second, now);
    } else if (const auto found = callers_.find(number); found != callers_.end()) {
        hear(number, found->second);
    }
}

void Directory::expire(Time now) {
    std::erase_if(callers_, [&](const auto& each) { return now >= each.second.deadline; });
    std::vector<std::uint32_t> due;
    for (const auto& [number, call] : calls_)
        if (now >= call.again_at) due.push_back(number);
    for (const std::uint32_t number : due)
        start(number, calls_.at(number), now);
}

Time Directory::next_deadline() const {
    Time next = time_never;
    for (const auto& [number, caller] : callers_)
        next = std::min(next, caller.deadline);
    for (const auto& [number, call] : calls_)
        next = std::min(next, call.again_at);
    return next;
}

}  // namespace incast::channel::api
