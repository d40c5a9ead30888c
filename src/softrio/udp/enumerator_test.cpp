// Destination ids from an enumerating host, by the host and by those who ask.
#include "softrio/udp/enumerator.h"

#include <atomic>
#include <map>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>

#include "softrio/shm/system.h"
#include "softrio/udp/membership.h"

namespace incast::softrio::udp {
namespace {

constexpr int deadline_ms = 20'000;

/// As the host tells it; nobody is there.
std::string at_port(int port) {
    return "127.0.0.1:" + std::to_string(port);
}

/// A host in a thread.
class Host {
public:
    explicit Host(std::uint32_t first = 1) {
        const auto at = parse_address("127.0.0.1:0", Ports::any_too);
        Enumerator::Observer observer;
        observer.refused = [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            refused_ += line + "\n";
        };
        auto made = Enumerator::listen(*at, first, std::move(observer));
        EXPECT_TRUE(made.ok());
        enumerator_ = std::move(*made);
        thread_ = std::thread([this] {
            while (!ending_)
                enumerator_->serve(1);
        });
    }
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;
    ~Host() {
        ending_ = true;
        thread_.join();
    }
    [[nodiscard]] const Address& address() const { return enumerator_->address(); }
    std::string refused() {
        const std::lock_guard lock(mutex_);
        return refused_;
    }

private:
    std::mutex mutex_;
    std::string refused_;
    std::unique_ptr<Enumerator> enumerator_;
    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

/// Somebody who joins, and what it knows of others.
struct Endpoint {
    explicit Endpoint(const Host& host) {
        auto connected = Membership::connect(host.address(), deadline_ms);
        EXPECT_TRUE(connected.ok());
        if (connected) membership = std::move(*connected);
    }
    Result<std::uint32_t> join(std::uint32_t wanted, std::uint16_t port) {
        return membership.join(wanted, port, deadline_ms, told());
    }
    Membership::Changed told() {
        return [this](std::uint32_t destid, const std::optional<Address>& at) {
            if (at)
                others[destid] = to_string(*at);
            else
                others.erase(destid);
        };
    }
    template <class Condition>
    bool eventually(Condition&& condition) {
        for (const std::int64_t until = shm::now_ms() + deadline_ms; shm::now_ms() < until;) {
            membership.take_in(told());
            if (condition()) return true;
            pollfd one{membership.fd(), POLLIN, 0};
            (void)::poll(&one, 1, 10);
        }
        return false;
    }
    bool knows(const std::map<std::uint32_t, std::string>& expected) {
        return eventually([&] { return others == expected; });
    }

    Membership membership;
    std::map<std::uint32_t, std::string> others;
};

TEST(Enumeration, GivesIdsAndTellsWhoIsThere) {
    const Host host;
    Endpoint one(host);
    Endpoint two(host);
    Endpoint five(host);
    EXPECT_EQ(one.join(0, 7001).value(), 1U);
    EXPECT_EQ(five.join(5, 7005).value(), 5U);
    EXPECT_EQ(two.join(0, 7002).value(), 2U);
    // All that were there before are known at once.
    EXPECT_EQ(two.others, (std::map<std::uint32_t, std::string>{{1, at_port(7001)}, {5, at_port(7005)}}));
    EXPECT_TRUE(one.knows({{2, at_port(7002)}, {5, at_port(7005)}}));
    two.membership.close();
    EXPECT_TRUE(one.knows({{5, at_port(7005)}}));
    Endpoint again(host);
    EXPECT_EQ(again.join(0, 7012).value(), 2U) << "who has left has left its id";
}

TEST(Enumeration, RefusesWhatIsTakenAndTakesAnother) {
    const Host host(100);
    Endpoint one(host);
    Endpoint two(host);
    EXPECT_EQ(one.join(9, 7001).value(), 9U);
    const auto refused = two.join(9, 7002);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "SoftRIO: the enumerating host says: destination id 9 is taken");
    EXPECT_EQ(two.join(0, 7002).value(), 100U);
}

TEST(Enumeration, ChangesAnId) {
    const Host host;
    Endpoint one(host);
    Endpoint two(host);
    ASSERT_TRUE(one.join(1, 7001).ok() && two.join(2, 7002).ok());
    two.membership.change(1);
    ASSERT_TRUE(two.eventually([&] { return two.membership.is_answered(); }));
    EXPECT_EQ(two.membership.destid(), 2U) << "1 is taken";
    two.membership.change(300);
    ASSERT_TRUE(two.eventually([&] { return two.membership.is_answered(); }));
    EXPECT_EQ(two.membership.destid(), 300U);
    EXPECT_TRUE(one.knows({{300, at_port(7002)}}));
}

TEST(Enumeration, AfterSyncAllAreKnown) {
    const Host host;
    Endpoint first(host);
    ASSERT_TRUE(first.join(0, 7001).ok());
    for (std::uint16_t number = 2; number < 12; ++number) {
        Endpoint another(host);
        const std::uint32_t destid = another.join(number, number).value();
        const std::uint32_t asked = first.membership.sync();
        ASSERT_TRUE(first.eventually([&] { return first.membership.is_synced(asked); }));
        EXPECT_TRUE(first.others.contains(destid));
    }
}

TEST(Enumeration, StrangersAreRefusedWithALineAndDisturbNobody) {
    Host host;
    Endpoint one(host);
    ASSERT_TRUE(one.join(0, 7001).ok());
    const std::string long_line(4 * max_line_bytes, 'x');
    for (const std::string& said : {std::string("GET / HTTP/1.1\r\n"), std::string("softrio-join 2 0 7000\n"),
                                    std::string("softrio-join 1 0 70000\n"), std::string("sync 1\n"), long_line}) {
        transport::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_storage at{};
        const socklen_t bytes = fill(host.address(), at);
        ASSERT_EQ(::connect(socket.fd(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
        Lines lines(std::move(socket));
        lines.say(said);
        std::string answer;
        while (lines.is_open()) {
            pollfd readable{lines.fd(), POLLIN, 0};
            ASSERT_EQ(::poll(&readable, 1, deadline_ms), 1) << said;
            lines.take([&](std::string_view line) { answer = line; });
        }
        EXPECT_EQ(answer.starts_with("refused "), said != long_line) << said;
    }
    EXPECT_NE(host.refused().find("was refused: no endpoint that this host understands"), std::string::npos);
    EXPECT_NE(host.refused().find("was refused: no UDP port"), std::string::npos);
    Endpoint two(host);
    EXPECT_EQ(two.join(0, 7002).value(), 2U);
    EXPECT_TRUE(one.knows({{2, at_port(7002)}}));
}

TEST(Enumeration, ALyingHostIsLeft) {
    // Whatever it is that listens there.
    transport::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage at{};
    socklen_t bytes = fill(*parse_address("127.0.0.1:0", Ports::any_too), at);
    ASSERT_EQ(::bind(listener.fd(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
    ASSERT_EQ(::listen(listener.fd(), 1), 0);
    ASSERT_EQ(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    auto joining = Membership::connect(address_of(at), deadline_ms);
    ASSERT_TRUE(joining.ok());
    Lines host(transport::Descriptor(::accept(listener.fd(), nullptr, nullptr)));
    host.say("220 mail.example ESMTP\n");
    const auto joined = joining->join(0, 7000, deadline_ms, [](auto, const auto&) { FAIL(); });
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().message, "SoftRIO: the enumerating host has closed the connection");
}

}  // namespace
}  // namespace incast::softrio::udp
