#include "runtime/config.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config_table.h"

namespace incast::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(std::initializer_list<const char*> assignments) {
    ConfigText text;
    for (const char* assignment : assignments) {
        if (const Result<Ok> done = text.assign(assignment); !done) {
            return done.error().message;
        }
    }
    const Result<RunConfig> config = text.parse();
    return config ? "" : config.error().message;
}

class ConfigFile : public testing::Test {
public:
    ~ConfigFile() override { std::filesystem::remove_all(folder_); }

protected:
    ConfigFile() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-config-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    std::filesystem::path write(const std::string& content) const {
        std::ofstream(folder_ / "config.toml") << content;
        return folder_ / "config.toml";
    }
    std::filesystem::path folder_;
};

TEST(Config, EveryDefaultIsValid) {
    const Result<RunConfig> config = ConfigText().parse();
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->nodes, 4U);
    EXPECT_EQ(config->duration, 0);  // auto
    EXPECT_EQ(config->warm_up, ps_per_s);
    EXPECT_EQ(config->mfp_size, 65536U);
    EXPECT_EQ(config->schedule, protocol::Schedule::linear_shift);
    EXPECT_EQ(config->transport, "shm");
}

TEST(Config, EveryKeyHasOneSpecWithHelpAndARange) {
    std::set<std::string_view> seen;
    for (const KeySpec& spec : config_keys()) {
        EXPECT_TRUE(seen.insert(spec.key).second) << spec.key;
        EXPECT_FALSE(spec.help.empty()) << spec.key;
        EXPECT_FALSE(range_text(spec).empty()) << spec.key;
        EXPECT_EQ(find_key(spec.key), &spec);
    }
}

TEST(Config, BoundsBelongToTheRange) {
    EXPECT_EQ(error_of({"run.nodes=1"}), "");
    EXPECT_EQ(error_of({"run.nodes=4096"}), "");
    EXPECT_THAT(error_of({"run.nodes=4097"}), AllOf(HasSubstr("run.nodes = 4097"), HasSubstr("1..4096")));
    EXPECT_EQ(error_of({"protocol.heartbeat=1ms"}), "");
    EXPECT_THAT(error_of({"protocol.heartbeat=999us"}), AllOf(HasSubstr("out of range"), HasSubstr("1ms..60s")));
}

TEST(Config, LaterAssignmentsWin) {
    ConfigText text;
    ASSERT_TRUE(text.assign("run.seed = 5").ok());
    ASSERT_TRUE(text.assign("run.seed=6").ok());
    EXPECT_EQ(text.parse()->seed, 6U);
}

TEST(Config, AutoIsForKeysThatKnowIt) {
    EXPECT_EQ(error_of({"protocol.credits=auto"}), "");
    EXPECT_THAT(error_of({"run.nodes=auto"}), HasSubstr("not a whole number"));
}

TEST(Config, UnknownKeysGetTheNearestKnownOne) {
    EXPECT_THAT(error_of({"run.node=4"}), HasSubstr("did you mean 'run.nodes'?"));
    EXPECT_THAT(error_of({"mfp_size=4"}), HasSubstr("did you mean 'protocol.mfp_size'?"));
    EXPECT_THAT(error_of({"run.zzzzzzzzzzzzzz=4"}), testing::Not(HasSubstr("did you mean")));
}

TEST(Config, NearestIsWithinASlipOfTheHand) {
    constexpr std::string_view words[]{"credits", "schedule", "scheme"};
    EXPECT_EQ(nearest("credit", words), "credits");
    EXPECT_EQ(nearest("shedule", words), "schedule");
    EXPECT_EQ(nearest("elephant", words), "");
    EXPECT_EQ(nearest("", words), "");
}

TEST(Config, SettingsOfATransportAreItsOwn) {
    ConfigText text;
    ASSERT_TRUE(text.assign("transport.name=tcp").ok());
    ASSERT_TRUE(text.assign("transport.tcp.streams=3").ok());
    ASSERT_TRUE(text.assign("transport.sim.rate=10Gb/s").ok());
    EXPECT_EQ(text.parse()->transport_settings, (transport::Settings{{"streams", "3"}}));
}

TEST_F(ConfigFile, TypedValuesAndTextAreTheSame) {
    ConfigText text;
    const Result<Ok> read =
        text.read_toml(write("[run]\nnodes = 6\nrespawn = true\nduration = \"2s\"\n[source]\nsize_sigma = "
                             "0.5\n[transport]\nname = \"inproc\"\n"));
    ASSERT_TRUE(read.ok()) << read.error().message;
    const Result<RunConfig> config = text.parse();
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->nodes, 6U);
    EXPECT_TRUE(config->respawn);
    EXPECT_EQ(config->duration, 2 * ps_per_s);
    EXPECT_DOUBLE_EQ(config->size_sigma, 0.5);
}

TEST_F(ConfigFile, WhatIsWrittenIsReadBack) {
    ConfigText text;
    for (const char* one : {"run.nodes=7", "sink.path=a \"quoted\" \\ path", "run.respawn=true",
                            "transport.tcp.streams=2", "source.size_sigma=0.125", "protocol.credits=auto"}) {
        ASSERT_TRUE(text.assign(one).ok()) << one;
    }
    ConfigText back;
    const Result<Ok> read = back.read_toml(write(config_toml(config_values(text))));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(config_values(back), config_values(text));
}

TEST_F(ConfigFile, ErrorsNameTheFile) {
    ConfigText text;
    EXPECT_THAT(text.read_toml(folder_ / "none.toml").error().message, HasSubstr("none.toml"));
    EXPECT_THAT(text.read_toml(folder_).error().message, HasSubstr("is a folder"));
    EXPECT_THAT(text.read_toml(write("[run]\n\nnodes = = 4\n")).error().message, HasSubstr("line 3"));
}

}  // namespace
}  // namespace incast::runtime
