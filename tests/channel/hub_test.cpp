// What a hub does by itself: channels within it, limits, peers that speak nonsense, forks.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"
#include "transport/inproc/inproc.h"
#include "transport/shm/shm.h"

namespace incast::channel {
namespace {

const Recipe plain{"plain", std::string(transport::inproc::transport_name), {}};

TEST(Hub, CH_O4_ChannelsWithinAHubAreRingsInMemory) {
    Pair pair(plain);
    Hub& hub = pair.hub(0);
    EXPECT_FALSE(hub.connect(Peer{0}, port, pair.options())) << "nobody listens";
    ASSERT_TRUE(hub.listen(port, Kind::bytes));
    EXPECT_FALSE(hub.listen(port, Kind::bytes)) << "the port is taken";
    const auto one = hub.connect(Peer{0}, port, pair.options());
    ASSERT_TRUE(one);
    const auto other = hub.accept(port);
    ASSERT_TRUE(other);
    Stream there(1, 50'000);
    Stream back(2, 50'000);
    ASSERT_TRUE(pair.until([&] {
        there.write(hub, *one);
        back.write(hub, *other);
        there.read(hub, *other);
        back.read(hub, *one);
        return hub.has_ended(*one) && hub.has_ended(*other);
    }));
    hub.close(*one);
    hub.close(*other);
    EXPECT_TRUE(pair.until([&] { return hub.channels() == 0; }));
}

TEST(Hub, CH_O4_AnEndWithinAHubIsSeenByTheOther) {
    Pair pair(plain);
    Hub& hub = pair.hub(0);
    ASSERT_TRUE(hub.listen(port, Kind::bytes));
    const auto one = hub.connect(Peer{0}, port, pair.options());
    const auto other = hub.accept(port);
    ASSERT_TRUE(one && other);
    hub.abort(*other);
    EXPECT_TRUE(pair.until([&] { return hub.fault(*one) == Fault::reset; }));
    hub.close(*one);
    EXPECT_TRUE(pair.until([&] { return hub.channels() == 0; }));
}

TEST(Hub, CH_O3_LimitsAreAnswered) {
    Pair pair(plain, {.max_channels = 4, .longest_ring_bytes = 8192, .backlog = 2});
    ASSERT_TRUE(pair.hub(1).listen(port, Kind::bytes));
    const auto large = pair.hub(0).connect(Peer{1}, port, {.shape = {.buffers = 16, .buffer_bytes = 1024, .batch = 4}});
    ASSERT_TRUE(large);
    EXPECT_TRUE(pair.until([&] { return pair.hub(0).fault(*large) == Fault::refused; }));
    std::vector<Id> ids;
    for (int each = 0; each < 3; ++each)
        ids.push_back(*pair.hub(0).connect(Peer{1}, port, pair.options()));
    EXPECT_TRUE(pair.until([&] { return pair.hub(0).fault(ids[2]) == Fault::full; })) << "two wait for accept()";
    EXPECT_FALSE(pair.hub(0).connect(Peer{1}, port, pair.options())) << "four are in use";
    pair.hub(1).unlisten(port);
    EXPECT_TRUE(pair.until([&] { return pair.hub(0).fault(ids[0]) == Fault::reset; }));
}

TEST(Hub, CH_C1_AWriteThatTakesNothingGivesNothingToDo) {
    Pair pair(plain);
    const auto ids = pair.join(pair.options());
    Hub& hub = pair.hub(0);
    const std::vector<std::byte> bytes(1000);
    // The other side does not read: the ring fills up, and then nothing happens any more.
    ASSERT_TRUE(
        pair.until([&] { return hub.write(ids[0], bytes) == 0 && !pair.sides[0].poll() && !pair.sides[1].poll(); }));
    (void)pair.until([&] { return !pair.sides[0].poll() && hub.prepare_wait(); });
    ASSERT_TRUE(hub.prepare_wait());
    EXPECT_EQ(hub.write(ids[0], bytes), 0U);
    EXPECT_TRUE(hub.prepare_wait()) << "who tries again before each sleep would never sleep";
    EXPECT_EQ(hub.write_in_place(ids[0], bytes), 0U);
    EXPECT_TRUE(hub.prepare_wait());
}

TEST(Hub, CH_M1_WhatAFullConnectionTurnsAwayIsCopied) {
    // The connection has room for 2048 notices, the ring for twice as many buffers.
    Pair pair({"shm", std::string(transport::shm::transport_name), {{"ring", "16384"}}});
    const auto ids = pair.join({.shape = {.buffers = 4096, .buffer_bytes = 64, .batch = 1024}});
    std::vector<std::byte> bytes(4096 * 48, std::byte{7});
    ASSERT_EQ(pair.hub(0).write(ids[0], bytes), bytes.size());
    EXPECT_LT(pair.hub(0).released(ids[0]), bytes.size()) << "all of it was posted";
    std::ranges::fill(bytes, std::byte{8});
    std::vector<std::byte> into(bytes.size());
    std::size_t got = 0;
    ASSERT_TRUE(pair.until([&] {
        got += pair.hub(1).read(ids[1], std::span(into).subspan(got));
        return got == into.size();
    }));
    EXPECT_TRUE(std::ranges::all_of(into, [](std::byte each) { return each == std::byte{7}; }));
}

TEST(Hub, CH_D1_ADescriptorThatIsHeldIsTrueAfterwards) {
    Pair pair(plain);
    const auto ids = pair.join(pair.options());
    const auto data = pair.hub(1).data_fd(ids[1]);
    ASSERT_TRUE(data);
    const auto is_readable = [&] {
        pollfd entry{.fd = *data, .events = POLLIN, .revents = 0};
        return ::poll(&entry, 1, 0) == 1;
    };
    std::array<std::byte, 100> into{};
    for (const std::size_t taken : {std::size_t{2}, std::size_t{3}}) {
        pair.hub(1).hold_data(ids[1], true);
        if (taken == 2) {
            ASSERT_EQ(pair.hub(0).write(ids[0], std::as_bytes(std::span("more"))), 5U);
            ASSERT_TRUE(pair.until([&] { return !pair.hub(1).readable(ids[1]).empty(); }));
            EXPECT_FALSE(is_readable());
        }
        EXPECT_EQ(pair.hub(1).read(ids[1], std::span(into).first(taken)), taken);
        pair.hub(1).hold_data(ids[1], false);
        EXPECT_EQ(is_readable(), taken == 2) << "three bytes were left";
    }
}

TEST(Hub, CH_D1_WhatComesBetweenAReadAndTheNextLookIsShown) {
    Pair pair(plain);
    Options options = pair.options(Way::memory);
    options.shape.batch = options.shape.buffers;  // no credit falls due that would have the hub look again
    const auto ids = pair.join(options);
    const auto data = pair.hub(1).data_fd(ids[1]);
    ASSERT_TRUE(data);
    for (int each = 0; each < 3; ++each) {
        ASSERT_EQ(pair.hub(0).write(ids[0], std::as_bytes(std::span("more"))), 5U);
        pair.hub(0).flush(ids[0]);  // it lands at once
        (void)pair.sides[1].poll();
        pollfd entry{.fd = *data, .events = POLLIN, .revents = 0};
        EXPECT_EQ(::poll(&entry, 1, 0), 1) << each;
        std::array<std::byte, 100> into{};
        EXPECT_EQ(pair.hub(1).read(ids[1], into), 5U);
    }
}

TEST(Hub, CH_O2_AnIdOfAClosedChannelNamesNone) {
    Pair pair(plain, {.max_channels = 1});
    const auto first = pair.join(pair.options());
    pair.hub(0).close(first[0]);
    pair.hub(1).close(first[1]);
    ASSERT_TRUE(pair.until([&] { return pair.hub(0).channels() + pair.hub(1).channels() == 0; }));
    const auto second = pair.join(pair.options());
    EXPECT_NE(first[0], second[0]);
    EXPECT_EQ(pair.hub(0).write(first[0], std::as_bytes(std::span("stale"))), 0U);
    EXPECT_FALSE(pair.hub(0).is_open(first[0]));
    EXPECT_TRUE(pair.hub(0).is_open(second[0]));
}

TEST(Hub, CH_O2_ChannelsComeAndGoWithoutEnd) {
    Pair pair(plain);
    const std::uint32_t more_than_regions = pair.sides[0].endpoint->capabilities().max_regions + 10;
    ASSERT_LT(more_than_regions, 100'000U);
    for (std::uint32_t each = 0; each < more_than_regions; ++each) {
        const auto ids = pair.join({.shape = {.buffers = 1, .buffer_bytes = 64, .batch = 1}});
        ASSERT_FALSE(HasFailure()) << each;
        pair.hub(0).close(ids[0]);
        pair.hub(1).close(ids[1]);
        ASSERT_TRUE(pair.until([&] { return pair.hub(0).channels() + pair.hub(1).channels() == 0; }));
    }
}

TEST(Hub, CH_O2_AChannelMayBeClosedAtAnyMomentOfItsOpening) {
    for (int moments = 0; moments < 8; ++moments) {
        Pair pair(plain);
        ASSERT_TRUE(pair.hub(1).listen(port, Kind::bytes));
        const auto id = pair.hub(0).connect(Peer{1}, port, pair.options());
        ASSERT_TRUE(id);
        for (int moment = 0; moment < moments; ++moment)
            (void)pair.sides[static_cast<std::size_t>(moment % 2)].poll();
        pair.hub(0).close(*id);
        EXPECT_TRUE(pair.until([&] {
            if (const auto other = pair.hub(1).accept(port)) pair.hub(1).close(*other);
            return pair.hub(0).channels() + pair.hub(1).channels() == 0;
        })) << moments;
    }
}

TEST(Hub, CH_E1_APeerThatSpeaksNonsenseIsDropped) {
    const auto say = [](Control control) {
        std::vector<std::byte> bytes(sizeof control);
        std::memcpy(bytes.data(), &control, sizeof control);
        return bytes;
    };
    std::vector<std::vector<std::byte>> lies;
    lies.push_back({std::byte{1}});
    lies.push_back(say({.magic = 5}));
    for (const auto what : {Control::What::opened, Control::What::refused, Control::What::closed, Control::What::wrote,
                            Control::What::emptied, Control::What::wants}) {
        lies.push_back(say({.what = what, .to = 0, .number = 1}));       // a channel that is open, by doorbells
        lies.push_back(say({.what = what, .to = 40'000, .number = 1}));  // none at all
    }
    lies.push_back(say({.what = Control::What::open, .port = port}));  // without a key
    lies.push_back(say({.what = static_cast<Control::What>(7)}));
    for (const std::vector<std::byte>& lie : lies) {
        Pair pair(plain);
        const auto ids = pair.join(pair.options());
        ASSERT_EQ(pair.sides[0].endpoint->send(Peer{1}, lie), Post::done);
        Control said;
        std::memcpy(&said, lie.data(), std::min(lie.size(), sizeof said));
        const bool is_true = lie.size() == sizeof said && said.what == Control::What::closed && said.to == 0;
        const Fault expected = is_true ? Fault::reset : Fault::broken;
        EXPECT_TRUE(pair.until([&] { return pair.hub(1).fault(ids[1]) == expected; }))
            << "what " << static_cast<int>(said.what) << " to " << said.to;
    }
}

TEST(Hub, CH_E1_ANoticeForNoChannelDropsThePeer) {
    Pair pair(plain);
    const auto ids = pair.join(pair.options());
    const auto region = pair.sides[1].endpoint->allocate(64);
    const auto key = pair.sides[1].endpoint->expose(*region);
    const auto remote = pair.sides[0].endpoint->import_key(Peer{1}, *key);
    ASSERT_TRUE(remote);
    ASSERT_EQ(pair.sides[0].endpoint->write(Peer{1}, {}, {}, {*remote, 0}, 999, 0), Post::done);
    EXPECT_TRUE(pair.until([&] { return pair.hub(1).fault(ids[1]) == Fault::broken; }));
    EXPECT_EQ(pair.hub(1).why(ids[1]),
              "the other side broke the rules of channels: it rang for a channel that is not open");
    EXPECT_TRUE(pair.until([&] { return pair.hub(0).fault(ids[0]) == Fault::lost; }));
}

TEST(Hub, CH_E2_APeerWhoseMemoryIsGoneIsGone) {
    Pair pair(plain);
    const auto ids = pair.join(pair.options());
    ASSERT_TRUE(pair.sides[1].endpoint->release(Local{0})) << "that of its channel";
    const std::vector<std::byte> bytes(1000);
    EXPECT_TRUE(pair.until([&] {
        (void)pair.hub(0).write(ids[0], bytes);
        return pair.hub(0).fault(ids[0]) == Fault::lost;
    }));
}

TEST(Hub, CH_E3_AfterAForkEveryCallSaysSo) {
    Pair pair(plain);
    const auto ids = pair.join(pair.options());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Hub& hub = pair.hub(0);
        const bool is_right = hub.fault(ids[0]) == Fault::forked && !hub.connect(Peer{1}, port, pair.options()) &&
                              hub.write(ids[0], std::as_bytes(std::span("x"))) == 0 && !hub.poll(now());
        ::_exit(is_right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(pair.hub(0).fault(ids[0]), Fault::none);
    EXPECT_GT(pair.hub(0).write(ids[0], std::as_bytes(std::span("x"))), 0U);
}

}  // namespace
}  // namespace incast::channel
