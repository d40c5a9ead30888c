#include "runtime/launch/lobby.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "runtime/machine/run_clock.h"

namespace incast::runtime {
namespace {

const std::string token = "0123456789abcdef";

constexpr std::uint32_t newest = rendezvous_versions.newest;

class Lobbies : public testing::Test {
public:
    ~Lobbies() override {
        reporter_.reset();
        std::filesystem::remove_all(folder_);
    }

protected:
    Lobbies() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-lobby-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        Result<std::unique_ptr<Reporter>> reporter = Reporter::open(folder_, Progress::none);
        reporter_ = std::move(*reporter);
        audit_ = std::make_unique<Audit>(*reporter_, 0);
        lobby_ = std::make_unique<Lobby>(token, *audit_, FrameLimits{max_sample_frame(4), max_small_frame});
        EXPECT_TRUE(lobby_->open("127.0.0.1:0").ok());
    }
    [[nodiscard]] Channel come() const {
        Result<os::Descriptor> connected = os::connect_to(lobby_->address(), 10'000);
        EXPECT_TRUE(connected.ok());
        return Channel(std::move(*connected), {max_coordinator_frame});
    }
    static void say_hello(Channel& channel, const std::string& with) {
        EXPECT_TRUE(channel.send(
            {{"type", "hello"}, {"magic", rendezvous_magic}, {"protocol", newest}, {"token", with}, {"node", 2}}));
    }
    /// At `at`, until `enough`.
    std::vector<Lobby::Joiner> receive(Time at, const std::function<bool(const std::vector<Lobby::Joiner>&)>& enough) {
        std::vector<Lobby::Joiner> all;
        const RunClock clock;
        while (!enough(all) && clock.now() < 30 * ps_per_s) {
            std::vector<pollfd> waiting;
            lobby_->watch(waiting, at);
            poll(waiting.data(), waiting.size(), 10);
            for (Lobby::Joiner& joiner : lobby_->receive(at)) {
                all.push_back(std::move(joiner));
            }
        }
        EXPECT_TRUE(enough(all)) << all.size();
        return all;
    }
    std::size_t waiting_now(Time at) {
        std::vector<pollfd> waiting;
        lobby_->watch(waiting, at);
        return waiting.size() - 1;
    }
    std::string answer_to(Channel& channel) {
        const RunClock clock;
        while (clock.now() < 30 * ps_per_s) {
            const Result<std::optional<Json>> message = channel.receive();
            if (!message) {
                return message.error().message;
            }
            if (message->has_value()) {
                return text_in(**message, "reason").value_or("");
            }
            pollfd waiting{channel.fd(), POLLIN, 0};
            poll(&waiting, 1, 10);
        }
        return "nothing";
    }

    static Json hello_with(Json versions) {
        versions.update(Json{{"type", "hello"}, {"magic", rendezvous_magic}, {"token", token}, {"node", nullptr}});
        return versions;
    }
    /// While the lobby is at work; nobody is let in.
    std::string answer_meanwhile(Channel& channel) {
        const RunClock clock;
        while (clock.now() < 30 * ps_per_s) {
            EXPECT_TRUE(lobby_->receive(0).empty());
            const Result<std::optional<Json>> message = channel.receive();
            if (!message) return message.error().message;
            if (message->has_value()) return text_in(**message, "reason").value_or("");
            pollfd waiting{channel.fd(), POLLIN, 0};
            poll(&waiting, 1, 10);
        }
        return "nothing";
    }

    std::filesystem::path folder_;
    std::unique_ptr<Reporter> reporter_;
    std::unique_ptr<Audit> audit_;
    std::unique_ptr<Lobby> lobby_;
};

TEST_F(Lobbies, WhoKnowsTheTokenIsLetInThoughSilentStrangersHoldEveryPlace) {
    std::vector<Channel> silent;
    for (int stranger = 0; stranger < 80; ++stranger) {
        silent.push_back(come());
    }
    Channel honest = come();
    say_hello(honest, token);
    const std::vector<Lobby::Joiner> joiners =
        receive(ps_per_s, [](const std::vector<Lobby::Joiner>& all) { return !all.empty(); });
    ASSERT_EQ(joiners.size(), 1U);
    EXPECT_EQ(joiners.front().wanted_node, 2U);
    receive(ps_per_s, [&](const auto&) { return waiting_now(ps_per_s) == 64; });
    EXPECT_EQ(answer_to(silent.front()), "too many connections that have not said who they are");
}

TEST_F(Lobbies, TheSilentHaveLittleTime) {
    Channel silent = come();
    receive(ps_per_s, [&](const auto&) { return waiting_now(ps_per_s) == 1; });
    EXPECT_EQ(lobby_->next_deadline(), 4 * ps_per_s);
    EXPECT_TRUE(lobby_->receive(4 * ps_per_s).empty());
    EXPECT_EQ(answer_to(silent), "it did not say who it is in time");
    EXPECT_EQ(waiting_now(4 * ps_per_s), 0U);
}

TEST_F(Lobbies, VersionsThatHaveOneInCommonMeet) {
    std::vector<Channel> channels;
    const auto come_with = [&](const Json& versions) {
        channels.push_back(come());
        EXPECT_TRUE(channels.back().send(hello_with(versions)));
    };
    come_with(Json::object({{"protocol", newest}}));  // as of 0.1.0
    come_with({{"protocol", newest + 1}, {"oldest_protocol", newest}});
    come_with({{"protocol", newest + 9}, {"oldest_protocol", 0}});
    receive(0, [](const auto& all) { return all.size() == 3; });
}

TEST_F(Lobbies, VersionsThatHaveNoneInCommonAreRefusedInOneLine) {
    Channel channel = come();
    EXPECT_TRUE(
        channel.send(hello_with({{"oldest_protocol", newest + 1}, {"protocol", newest + 2}, {"version", "1.2.3"}})));
    EXPECT_EQ(answer_meanwhile(channel),
              base::no_common_version("the rendezvous", base::Versions{newest + 1, newest + 2}, "1.2.3",
                                      rendezvous_versions));
}

TEST_F(Lobbies, AStrangerMaySayLittle) {
    Channel talker = come();
    say_hello(talker, std::string(max_stranger_frame, 'x'));
    Channel honest = come();
    say_hello(honest, token);
    receive(0, [](const auto& all) { return all.size() == 1; });
    EXPECT_NE(answer_to(talker).find("at most 1024 are allowed before it was let in"), std::string::npos);
}

}  // namespace
}  // namespace incast::runtime
