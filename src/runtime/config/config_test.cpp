#include "runtime/config/config.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config/config_table.h"
#include "transport/builtin/builtin.h"

namespace incast::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(std::initializer_list<std::string> assignments) {
    ConfigText text;
    for (const std::string& assignment : assignments) {
        if (const Result<Ok> done = text.assign(assignment); !done) {
            return done.error().message;
        }
    }
    const Result<RunConfig> config = text.parse();
    return config ? "" : config.error().message;
}

/// A setting of the transport that a run across hosts takes, by the name that the list gives it.
std::string across(std::string_view setting) {
    return fmt::format("transport.{}.{}", transport::chosen_transport(true).name, setting);
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
    EXPECT_EQ(config->transport, transport::chosen_transport(false).name);
}

TEST(Config, EveryKeyHasOneSpecWithHelpAndARange) {
    std::set<std::string_view> seen;
    for (const KeySpec& spec : config_keys()) {
        EXPECT_TRUE(seen.insert(spec.name).second) << spec.name;
        EXPECT_FALSE(spec.help.empty()) << spec.name;
        EXPECT_FALSE(base::range_text(spec).empty()) << spec.name;
        EXPECT_EQ(find_key(spec.name), &spec);
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

TEST(Config, SettingsOfATransportAreItsOwn) {
    ConfigText text;
    ASSERT_TRUE(text.assign(fmt::format("transport.name={}", transport::chosen_transport(true).name)).ok());
    ASSERT_TRUE(text.assign(across("streams=3")).ok());
    ASSERT_TRUE(text.assign("transport.sim.rate=10Gb/s").ok());
    EXPECT_EQ(text.parse()->transport_settings, (transport::Settings{{"streams", "3"}}));
}

TEST(Config, NetworkAndPortsAreForTransportsThatListen) {
    const std::string name = fmt::format("transport.name={}", transport::chosen_transport(true).name);
    ConfigText text;
    ASSERT_TRUE(text.assign(name).ok());
    ASSERT_TRUE(text.assign("run.ports=40000-40999").ok());
    EXPECT_EQ(text.parse()->transport_settings, (transport::Settings{{"ports", "40000-40999"}}));
    EXPECT_EQ(error_of({name, "run.network=10.1.0.0/33"}),
              "run.network = 10.1.0.0/33: no subnet; allowed: one such as 10.1.0.0/16");
    EXPECT_THAT(error_of({"transport.name=sim", "run.network=ib0"}),
                HasSubstr("run.network = ib0: sim cannot choose; allowed with transport.name = "));
    EXPECT_THAT(error_of({"transport.name=sim", "run.ports=1-2"}), HasSubstr("run.ports = 1-2: sim cannot choose"));
}

TEST(Config, SettingsOfEveryTransportAreChecked) {
    EXPECT_EQ(error_of({across("staging=12Q")}), across("staging = 12Q: not a size; allowed: 8.0 KiB..16.0 MiB"))
        << "though another one is in use";
    EXPECT_EQ(error_of({across("staging=64KiB"), across("max_rate=100Gbps")}), "");
    EXPECT_THAT(error_of({across("stream=1")}), HasSubstr("did you mean '" + across("streams") + "'?"));
    const std::string name(transport::chosen_transport(true).name);
    EXPECT_THAT(error_of({"transport." + name + name.back() + ".streams=1"}),
                HasSubstr("did you mean '" + name + "'?"));
}

TEST(Config, AnAliasIsTheWordItStandsFor) {
    ConfigText text;
    ASSERT_TRUE(text.assign("protocol.scheme=pull-write").ok());
    EXPECT_EQ(text.given().at("protocol.scheme"), "pull");
    EXPECT_EQ(text.parse()->scheme, protocol::Scheme::pull_write);
}

TEST(Config, FormerNamesAreThePresentOnesWithAWarning) {
    ConfigText text;
    EXPECT_EQ(text.warning(), "");
    for (const std::string& one :
         {std::string("protocol.slot_bytes=1MiB"), std::string("transport.shm.hello_timeout_ms=1500"),
          std::string("transport.rio.poll_every_us = 20"), across("hello_timeout_ms=3s")}) {
        ASSERT_TRUE(text.assign(one).ok()) << one;
    }
    const std::map<std::string, std::string> present{{"protocol.slot_size", "1MiB"},
                                                     {"transport.shm.hello_timeout", "1500ms"},
                                                     {"transport.rio.poll_every", "20us"},
                                                     {across("hello_timeout"), "3s"}};
    EXPECT_EQ(text.given(), present);
    EXPECT_TRUE(text.parse().ok());
    EXPECT_THAT(text.warning(), AllOf(HasSubstr("protocol.slot_bytes is now protocol.slot_size, "),
                                      HasSubstr("transport.shm.hello_timeout_ms is now transport.shm.hello_timeout"),
                                      HasSubstr("the next version")));
}

TEST(Config, FormerNamesLeadToPresentOnes) {
    for (const FormerKey& name : former_names()) {
        EXPECT_EQ(find_setting(name.former), nullptr) << name.former;
        EXPECT_NE(find_setting(name.present), nullptr) << name.present;
    }
}

TEST(Config, NoNameCarriesAUnit) {
    const auto check = [](std::string_view name) {
        for (const std::string_view unit : {"_bytes", "_ps", "_ns", "_us", "_ms", "_s", "_hz", "_per_s"}) {
            EXPECT_FALSE(name.ends_with(unit)) << name;
        }
    };
    for (const KeySpec& spec : config_keys())
        check(spec.name);
    for (const transport::Descriptor& builtin : transport::builtin_transports()) {
        for (const base::Setting& setting : builtin.settings)
            check(setting.name);
    }
}

/// Every setting there is, by its whole name.
std::map<std::string, const base::Setting*> all_settings() {
    std::map<std::string, const base::Setting*> all;
    for (const KeySpec& spec : config_keys())
        all[std::string(spec.name)] = &spec;
    for (const transport::Descriptor& builtin : transport::builtin_transports()) {
        for (const base::Setting& setting : builtin.settings) {
            all["transport." + std::string(builtin.name) + "." + std::string(setting.name)] = &setting;
        }
    }
    return all;
}

/// Texts that a setting takes: its default, every word, the ends of its range as they are said.
std::vector<std::string> texts_of(const base::Setting& setting) {
    std::vector<std::string> texts{std::string(setting.default_value)};
    texts.insert(texts.end(), setting.choices.begin(), setting.choices.end());
    for (const base::Alias& alias : setting.aliases)
        texts.emplace_back(alias.word);
    if (setting.kind == base::Kind::boolean) texts.insert(texts.end(), {"true", "false"});
    if (setting.may_be_auto) texts.emplace_back("auto");
    if (setting.max > 0) {
        const std::string range = base::range_text(setting);
        const std::size_t dots = range.find("..");
        if (setting.kind == base::Kind::count && setting.max >= 1e9) return texts;  // said as 9e+15
        texts.push_back(range.substr(0, dots));
        texts.push_back(range.substr(
            dots + 2, range.find(',') == std::string::npos ? std::string::npos : range.find(',') - dots - 2));
    }
    return texts;
}

TEST_F(ConfigFile, EverySettingGoesThroughSetAndFile) {
    for (const auto& [key, setting] : all_settings()) {
        for (const std::string& text : texts_of(*setting)) {
            ConfigText set;
            ASSERT_TRUE(set.set(key, text).ok()) << key << " = " << text;
            const Result<RunConfig> parsed = set.parse();
            ASSERT_TRUE(parsed.ok()) << parsed.error().message;
            ConfigText file;
            const Result<Ok> read = file.read_toml(write(config_toml(set.given())));
            ASSERT_TRUE(read.ok()) << read.error().message;
            const auto value = [&](const ConfigText& from) {
                return base::parse(*setting, config_values(from).at(key)).value();
            };
            EXPECT_EQ(value(file), value(set)) << key << " = " << text;
        }
        if (setting->max > 0) {
            const std::string line = error_of({(key + "=1e99").c_str()});
            EXPECT_THAT(line, testing::StartsWith(key + " = 1e99: ")) << "of what range?";
            EXPECT_THAT(line, testing::EndsWith("; allowed: " + base::range_text(*setting)));
        }
    }
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
    for (const std::string& one :
         {std::string("run.nodes=7"), std::string("sink.path=a \"quoted\" \\ path"), std::string("run.respawn=true"),
          across("streams=2"), std::string("source.size_sigma=0.125"), std::string("protocol.credits=auto")}) {
        ASSERT_TRUE(text.assign(one).ok()) << one;
    }
    ConfigText back;
    const Result<Ok> read = back.read_toml(write(config_toml(config_values(text))));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(config_values(back), config_values(text));
}

TEST_F(ConfigFile, NumbersAreWrittenAsTomlAndJsonHaveThem) {
    ConfigText text;
    for (const char* one : {"run.events=007", "source.mean_ratio=2.", "source.size_sigma=.125"}) {
        ASSERT_TRUE(text.assign(one).ok()) << one;
    }
    ConfigText back;
    const Result<Ok> read = back.read_toml(write(config_toml(text.given())));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(back.parse()->events, 7U);
    EXPECT_DOUBLE_EQ(back.parse()->mean_ratio, 2);
    EXPECT_DOUBLE_EQ(back.parse()->size_sigma, 0.125);
}

TEST_F(ConfigFile, ErrorsNameTheFile) {
    ConfigText text;
    EXPECT_THAT(text.read_toml(folder_ / "none.toml").error().message, HasSubstr("none.toml"));
    EXPECT_THAT(text.read_toml(folder_).error().message, HasSubstr("is a folder"));
    EXPECT_THAT(text.read_toml(write("[run]\n\nnodes = = 4\n")).error().message, HasSubstr("line 3"));
}

}  // namespace
}  // namespace incast::runtime
