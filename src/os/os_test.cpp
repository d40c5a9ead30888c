#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/handing.h"
#include "os/poller.h"
#include "os/spare.h"

namespace incast::os {
namespace {

std::array<Descriptor, 2> pair(int type) {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()), 0);
    return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::ptrdiff_t open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// Both are the same open file.
bool are_one(const Descriptor& pipe_end, const Descriptor& other_end) {
    char byte = 0;
    return ::write(pipe_end.fd(), "x", 1) == 1 && ::read(other_end.fd(), &byte, 1) == 1 && byte == 'x';
}

class Handing : public testing::TestWithParam<int> {
protected:
    Handing() {
        std::array<int, 2> ends{-1, -1};
        EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
        out_ = Descriptor(ends[0]);
        in_ = Descriptor(ends[1]);
    }
    std::array<char, 4> text_{'a', 'b', 'c', 'd'};
    Descriptor out_;
    Descriptor in_;
};

TEST_P(Handing, DescriptorsComeInTheirOrderBesideTheBytes) {
    auto [here, there] = pair(GetParam());
    const std::array files{in_.fd(), out_.fd()};
    const std::array parts{iovec{text_.data(), 1}, iovec{text_.data() + 1, 3}};
    ASSERT_EQ(send_handing(here.fd(), parts, files, 0), 4);
    std::array<char, 4> into{};
    const std::array into_parts{iovec{into.data(), into.size()}};
    std::array<Descriptor, 2> came;
    int flags = -1;
    ASSERT_EQ(receive_handed(there.fd(), into_parts, came, MSG_DONTWAIT, &flags), 4);
    EXPECT_EQ(into, text_);
    EXPECT_EQ(flags & (MSG_TRUNC | MSG_CTRUNC), 0);
    ASSERT_TRUE(came[0].is_open() && came[1].is_open());
    EXPECT_TRUE(are_one(came[0], came[1]));
    EXPECT_NE(::fcntl(came[0].fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_P(Handing, WhatIsNotAskedForStaysNotOpen) {
    auto [here, there] = pair(GetParam());
    const std::array parts{iovec{text_.data(), text_.size()}};
    const std::array files{in_.fd(), out_.fd(), in_.fd()};
    ASSERT_EQ(send_handing(here.fd(), parts, files, 0), 4);
    ASSERT_EQ(send_handing(here.fd(), parts, files, 0), 4);
    const std::ptrdiff_t before = open_descriptors();
    Descriptor one;
    ASSERT_EQ(receive_handed(there.fd(), parts, std::span(&one, 1), MSG_DONTWAIT), 4);
    EXPECT_TRUE(one.is_open());
    ASSERT_EQ(receive_handed(there.fd(), parts, {}, MSG_DONTWAIT), 4);
    EXPECT_EQ(open_descriptors(), before + 1);
}

TEST_P(Handing, WithoutDescriptorsItIsAnOrdinaryMessage) {
    auto [here, there] = pair(GetParam());
    const std::array parts{iovec{text_.data(), text_.size()}};
    Descriptor kept(::dup(0));
    const int number = kept.fd();
    EXPECT_EQ(receive_handed(there.fd(), parts, std::span(&kept, 1), MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_EQ(send_handing(here.fd(), parts, {}, 0), 4);
    ASSERT_EQ(receive_handed(there.fd(), parts, std::span(&kept, 1), MSG_DONTWAIT), 4);
    EXPECT_EQ(kept.fd(), number);
    here.close();
    EXPECT_EQ(receive_handed(there.fd(), parts, {}, MSG_DONTWAIT), 0);
    EXPECT_EQ(send_handing(there.fd(), parts, {}, 0), -1);
    EXPECT_EQ(errno, EPIPE) << "and no signal";
}

INSTANTIATE_TEST_SUITE_P(Every, Handing, testing::Values(int{SOCK_STREAM}, int{SOCK_SEQPACKET}),
                         [](const auto& each) { return each.param == SOCK_STREAM ? "stream" : "packets"; });

TEST(Spare, WhoCallsWhereNoDescriptorIsLeftIsShownAndTurnedAway) {
    const pid_t child = ::fork();
    if (child == 0) {
        Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
        EXPECT_EQ(::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof name.sun_family), 0);
        socklen_t size = sizeof name;
        EXPECT_EQ(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&name), &size), 0);
        EXPECT_EQ(::listen(listener.fd(), 5), 0);
        const Descriptor caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(caller.fd(), reinterpret_cast<const sockaddr*>(&name), size), 0);
        Spare spare;
        rlimit few{};
        EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &few), 0);
        few.rlim_cur = 64;
        EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
        std::vector<Descriptor> all;
        for (Descriptor one(::dup(0)); one.is_open(); one = Descriptor(::dup(0)))
            all.push_back(std::move(one));
        for (int time = 0; time < 2; ++time) {
            EXPECT_LT(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC), 0);
            EXPECT_TRUE(Spare::is_needed_for(errno)) << errno;  // whether somebody waits or not
            int shown = 0;
            spare.turn_away(listener, [&](const Descriptor& who) { shown += who.is_open() ? 1 : 0; });
            EXPECT_EQ(shown, time == 0 ? 1 : 0);
        }
        char byte = 0;
        EXPECT_EQ(::recv(caller.fd(), &byte, 1, MSG_DONTWAIT), 0) << "its connection has ended";
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(Poller, ByPollSaysWhatIsReadyAndForgetsWhatIsClosed) {
    Poller poller(Poller::Kind::poll);
    EXPECT_EQ(poller.fd(), -1);
    std::array<epoll_event, 4> events{};
    EXPECT_EQ(poller.ready(events), 0U);
    std::array<Descriptor, 2> quiet = pair(SOCK_STREAM);
    std::array<Descriptor, 2> busy = pair(SOCK_STREAM);
    ASSERT_TRUE(poller.add(quiet[0], EPOLLIN, 7));
    ASSERT_TRUE(poller.add(busy[0], EPOLLIN | EPOLLRDHUP | EPOLLET, 8));
    EXPECT_EQ(poller.ready(events), 0U);
    ASSERT_EQ(::write(busy[1].fd(), "x", 1), 1);
    for (int time = 0; time < 2; ++time) {
        ASSERT_EQ(poller.ready(events), 1U) << "again and again";
        EXPECT_EQ(std::uint64_t{events[0].data.u64}, 8U);
        EXPECT_EQ(events[0].events, static_cast<std::uint32_t>(EPOLLIN));
    }
    const int number = busy[0].fd();
    busy[0].close();
    const Descriptor next(::dup2(quiet[1].fd(), number));
    ASSERT_EQ(next.fd(), number);
    ASSERT_TRUE(poller.add(next, EPOLLOUT, 9));
    ASSERT_EQ(poller.ready(events), 1U);
    EXPECT_EQ(std::uint64_t{events[0].data.u64}, 9U) << "not the one that had its number";
    quiet[0].close();
    poller.remove(next);
    EXPECT_EQ(poller.ready(events), 0U) << "who is closed is not looked at any more";
}

}  // namespace
}  // namespace incast::os
