// Channels keep their promises on every transport (docs/channel.md has the table), each with every way to hear of a
// write.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "pair.h"
#include "transport/rio/descriptor/descriptor.h"
#include "transport/tcp/tcp.h"

namespace incast::channel {
namespace {

struct Case {
    Recipe recipe;
    Way way;
    friend void PrintTo(const Case& here, std::ostream* out) { *out << here.recipe.name; }
};

/// Addresses of this host, a network for each process, so that no port has to be found that is free.
std::string private_fabric() {
    const auto pid = static_cast<unsigned>(::getpid());
    return "udp:127." + std::to_string(128 + (pid >> 8U) % 127) + "." + std::to_string(pid & 0xFFU) + ".0/24:7401";
}

/// Those that can run here; or the one that INCAST_CHANNEL_TRANSPORT names, on whatever its module brings.
std::vector<Recipe> all_recipes() {
    if (const char* only = std::getenv("INCAST_CHANNEL_TRANSPORT")) return {{only, only, {}}};
    std::vector<Recipe> recipes;
    for (const transport::Descriptor& each : transport::builtin_transports()) {
        if (each.missing_here != nullptr && !each.missing_here().empty()) continue;
        // No scheme of channels names these. UCX can end the process in the midst of it (docs/transports/ucx.md).
        if (each.launch != nullptr || each.name == "ucx") continue;
        recipes.push_back({std::string(each.name), std::string(each.name), {}});
    }
    const std::string rio(transport::rio::transport_name);
    const std::string tcp(transport::tcp::transport_name);
    recipes.push_back({"rio_weak", rio, {{"order", "weak"}, {"dma_channels", "4"}, {"look_every", "2ms"}}});
    recipes.push_back({"rio_udp", rio, {{"fabric", private_fabric()}}});
    recipes.push_back({"tcp_streams", tcp, {{"streams", "3"}}});
    return recipes;
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (const Recipe& recipe : all_recipes())
        for (const Way way : {Way::memory, Way::doorbell, Way::message})
            cases.push_back({recipe, way});
    return cases;
}

class Channels : public testing::TestWithParam<Case> {
protected:
    [[nodiscard]] Options options(Kind kind = Kind::bytes) const { return pair_.options(GetParam().way, kind); }
    [[nodiscard]] std::size_t much() const {
        return pair_.sides[0].endpoint->capabilities().phantom_bodies ? 3'000 : 60'000;
    }
    std::string read(std::size_t side, Id id) {
        std::string text(4096, '\0');
        text.resize(pair_.hub(side).read(id, std::as_writable_bytes(std::span(text))));
        return text;
    }
    std::size_t write(std::size_t side, Id id, std::string_view text) {
        return pair_.hub(side).write(id, std::as_bytes(std::span(text.data(), text.size())));
    }
    Pair pair_{GetParam().recipe};
};

TEST_P(Channels, CH_B1_BothDirectionsCarryBytesUntilTheyEnd) {
    const auto [a, b] = pair_.join(options());
    Stream there(1, much());
    Stream back(2, much());
    ASSERT_TRUE(pair_.until([&] {
        there.write(pair_.hub(0), a);
        back.write(pair_.hub(1), b);
        there.read(pair_.hub(1), b);
        back.read(pair_.hub(0), a);
        return HasFatalFailure() || (pair_.hub(0).has_ended(a) && pair_.hub(1).has_ended(b));
    }));
    EXPECT_TRUE(there.is_read() && back.is_read());
    EXPECT_EQ(pair_.hub(0).fault(a), Fault::none);
    pair_.hub(0).close(a);
    pair_.hub(1).close(b);
    EXPECT_TRUE(pair_.until([&] { return pair_.hub(0).channels() + pair_.hub(1).channels() == 0; }))
        << "something is left";
}

TEST_P(Channels, CH_H1_OneDirectionEndsAndTheOtherGoesOn) {
    const auto [a, b] = pair_.join(options());
    (void)write(0, a, "a question");
    pair_.hub(0).finish(a);
    std::string question;
    ASSERT_TRUE(pair_.until([&] {
        question += read(1, b);
        return pair_.hub(1).has_ended(b);
    }));
    EXPECT_EQ(question, "a question");
    for (int answer = 0; answer < 20; ++answer) {
        ASSERT_TRUE(pair_.until([&] { return pair_.hub(1).has_room(b); }));
        (void)write(1, b, "an answer");
        std::string got;
        ASSERT_TRUE(pair_.until([&] { return (got += read(0, a)) == "an answer"; }));
    }
}

TEST_P(Channels, CH_O1_ManyShareOnePeer) {
    constexpr std::size_t count = 12;
    std::vector<std::array<Id, 2>> ids;
    std::vector<Stream> streams;
    for (std::size_t each = 0; each < count; ++each) {
        ids.push_back(pair_.join(options()));
        streams.emplace_back(100 + each, much() / 10);
    }
    ASSERT_TRUE(pair_.until([&] {
        bool all = true;
        for (std::size_t each = 0; each < count; ++each) {
            streams[each].write(pair_.hub(0), ids[each][0]);
            streams[each].read(pair_.hub(1), ids[each][1]);
            all = all && pair_.hub(1).has_ended(ids[each][1]);
        }
        return all || HasFatalFailure();
    }));
    EXPECT_TRUE(std::ranges::all_of(streams, &Stream::is_read));
}

TEST_P(Channels, CH_C1_WhoIsNotReadIsPressedBackAlone) {
    const auto [a, b] = pair_.join(options());
    const auto [c, d] = pair_.join(options());
    const std::string much(100'000, 'x');
    std::size_t written = 0;
    for (int round = 0; round < 50; ++round) {
        written += write(0, a, much);
        pair_.pump();
    }
    EXPECT_LE(written, options().shape.bytes());
    EXPECT_FALSE(pair_.hub(0).has_room(a));
    (void)write(0, c, "passes");
    std::string got;
    EXPECT_TRUE(pair_.until([&] { return (got += read(1, d)) == "passes"; }));
    std::size_t taken = 0;
    EXPECT_TRUE(pair_.until([&] { return (taken += read(1, b).size()) == written && pair_.hub(0).has_room(a); }));
}

TEST_P(Channels, CH_E2_WhatCameBeforeAPeerIsLostCanBeRead) {
    const auto [a, b] = pair_.join(options());
    (void)write(0, a, "last words");
    ASSERT_TRUE(pair_.until([&] { return !pair_.hub(1).readable(b).empty(); }));
    pair_.sides[0].end();
    ASSERT_TRUE(pair_.until([&] { return pair_.hub(1).fault(b) == Fault::lost; }));
    EXPECT_EQ(read(1, b), "last words");
    EXPECT_FALSE(pair_.hub(1).has_ended(b)) << "it never said so";
    EXPECT_EQ(write(1, b, "to nobody"), 0U);
    pair_.hub(1).close(b);
    EXPECT_TRUE(pair_.until([&] { return pair_.hub(1).channels() == 0; }));
}

TEST_P(Channels, CH_O2_WhoGivesUpResetsTheOther) {
    const auto [a, b] = pair_.join(options());
    pair_.hub(0).abort(a);
    EXPECT_TRUE(pair_.until([&] { return pair_.hub(1).fault(b) == Fault::reset; }));
    pair_.hub(1).close(b);
    EXPECT_TRUE(pair_.until([&] { return pair_.hub(0).channels() + pair_.hub(1).channels() == 0; }));
}

TEST_P(Channels, CH_M1_WhoDisconnectsHasItsMemoryBack) {
    const auto [a, b] = pair_.join(options());
    const auto [c, d] = pair_.join(options());
    const std::string text(options().shape.bytes(), 'p');
    const Bytes bytes = std::as_bytes(std::span(text));
    std::size_t sent = 0;
    for (int round = 0; round < 8; ++round) {  // nobody reads
        sent += pair_.hub(0).write_in_place(a, bytes.subspan(sent));
        (void)pair_.sides[0].poll();
    }
    pair_.hub(0).disconnect(a);
    EXPECT_TRUE(pair_.until(
        [&] { return pair_.hub(0).fault(a) == Fault::lost && pair_.hub(0).released(a) == pair_.hub(0).written(a); }));
    EXPECT_TRUE(pair_.until([&] { return pair_.hub(1).fault(b) != Fault::none; }));
    EXPECT_TRUE(pair_.until([&] { return pair_.hub(1).fault(d) != Fault::none; })) << "it goes by the same connection";
    EXPECT_EQ(pair_.hub(0).fault(c), Fault::lost);
}

TEST_P(Channels, CH_O2_WhatWasWrittenBeforeCloseArrives) {
    const auto [a, b] = pair_.join(options());
    std::string text(options().shape.bytes(), 'q');
    text.resize(write(0, a, text));
    pair_.hub(0).close(a);  // the end has no room yet
    EXPECT_EQ(write(0, a, "more"), 0U);
    std::string got;
    EXPECT_TRUE(pair_.until([&] {
        got += read(1, b);
        return pair_.hub(1).has_ended(b);
    }));
    EXPECT_EQ(got, text);
    pair_.hub(1).close(b);
    EXPECT_TRUE(pair_.until([&] { return pair_.hub(0).channels() + pair_.hub(1).channels() == 0; }));
}

TEST_P(Channels, CH_O2_WhoClosesLetsTheOtherFinishFirst) {
    const auto [a, b] = pair_.join(options());
    const std::string text(options().shape.bytes(), 'q');
    const std::size_t first = write(0, a, text);
    pair_.hub(0).close(a);
    std::size_t written = 0;
    EXPECT_TRUE(pair_.until([&] {
        written += write(1, b, text);
        return written > 2 * text.size();
    })) << "nobody reads it, but it is dropped";
    pair_.hub(1).finish(b);
    std::size_t taken = 0;
    EXPECT_TRUE(pair_.until([&] {
        taken += read(1, b).size();
        return pair_.hub(1).has_ended(b);
    }));
    EXPECT_EQ(taken, first);
}

TEST_P(Channels, CH_M1_WhatIsSentInPlaceIsReleased) {
    const auto [a, b] = pair_.join(options());
    const std::string text(options().shape.buffer_bytes * 2 - 100, 'p');
    const Bytes bytes = std::as_bytes(std::span(text));
    std::string got;
    std::size_t sent = 0;
    EXPECT_TRUE(pair_.until([&] {
        sent += pair_.hub(0).write_in_place(a, bytes.subspan(sent));
        got += read(1, b);
        return got.size() == text.size() && pair_.hub(0).released(a) == text.size();
    }));
    EXPECT_EQ(got, text);
}

TEST_P(Channels, CH_M1_WhatIsWrittenIsTheCallersAgain) {
    const auto [a, b] = pair_.join(options());
    std::string sent;
    std::string got;
    for (const std::size_t length : {options().shape.buffer_bytes * 2 - 100, 20U, options().shape.buffer_bytes}) {
        std::string text(length, static_cast<char>('a' + length % 26));
        text.resize(write(0, a, text));
        sent += text;
        std::ranges::fill(text, '!');
    }
    EXPECT_TRUE(pair_.until([&] {
        got += read(1, b);
        return got.size() == sent.size();
    }));
    EXPECT_EQ(got, sent);
}

TEST_P(Channels, CH_O3_NobodyAndAnotherKindAreRefused) {
    ASSERT_TRUE(pair_.hub(1).listen(port, Kind::messages));
    const auto nobody = pair_.hub(0).connect(Peer{1}, port + 1, options());
    const auto other = pair_.hub(0).connect(Peer{1}, port, options(Kind::bytes));
    ASSERT_TRUE(nobody && other);
    EXPECT_TRUE(pair_.until(
        [&] { return pair_.hub(0).fault(*nobody) == Fault::nobody && pair_.hub(0).fault(*other) == Fault::refused; }));
    pair_.hub(0).close(*nobody);
    pair_.hub(0).close(*other);
    EXPECT_TRUE(pair_.until([&] { return pair_.hub(0).channels() == 0; }));
    EXPECT_FALSE(pair_.hub(0).connect(Peer{3}, port, options())) << "not connected";
    EXPECT_FALSE(pair_.hub(0).connect(Peer{1}, port, {.shape = {.buffers = 0}}));
}

bool is_readable(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
}

TEST_P(Channels, CH_D1_DescriptorsAreReadableExactlyWhile) {
    const auto [a, b] = pair_.join(options());
    const auto room = pair_.hub(0).room_fd(a);
    const auto data = pair_.hub(1).data_fd(b);
    ASSERT_TRUE(room && data);
    EXPECT_TRUE(is_readable(*room));
    EXPECT_FALSE(is_readable(*data));
    const std::string text(options().shape.bytes(), 'f');
    const std::size_t written = write(0, a, text);
    EXPECT_FALSE(is_readable(*room)) << "the ring is full";
    ASSERT_TRUE(pair_.until([&] { return is_readable(*data); }));
    std::size_t taken = 0;
    ASSERT_TRUE(pair_.until([&] {
        taken += read(1, b).size();
        EXPECT_EQ(is_readable(*data), !pair_.hub(1).readable(b).empty());
        return taken == written;
    }));
    EXPECT_TRUE(pair_.until([&] { return is_readable(*room); }));
    EXPECT_FALSE(is_readable(*data));
    pair_.hub(0).finish(a);
    EXPECT_TRUE(pair_.until([&] { return is_readable(*data); })) << "the end can be read, too";
}

std::string name_of(const testing::TestParamInfo<Case>& here) {
    static constexpr std::array ways{"memory", "doorbell", "message"};
    return here.param.recipe.name + "_" + ways.at(static_cast<std::size_t>(here.param.way));
}

INSTANTIATE_TEST_SUITE_P(Every, Channels, testing::ValuesIn(all_cases()), name_of);

}  // namespace
}  // namespace incast::channel
