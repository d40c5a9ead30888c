#include "runtime/launch/agreement.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace incast::runtime {
namespace {

using base::Versions;

constexpr std::uint32_t newest = rendezvous_versions.newest;

TEST(Agreement, WhatAHelloSaysOfTheRendezvous) {
    const auto range = [](const Json& from, const Json& to) {
        return Json{{"oldest_protocol", from}, {"protocol", to}, {"version", "1.2.3"}};
    };
    EXPECT_EQ(wrong_rendezvous_version(range(newest, newest + 1)), "");
    EXPECT_EQ(wrong_rendezvous_version(range(newest - 1, newest)), "");
    EXPECT_EQ(wrong_rendezvous_version(Json{{"protocol", newest}}), "") << "of 0.1.0";
    EXPECT_EQ(wrong_rendezvous_version(hello_with_versions("1.2.3")), "");
    EXPECT_EQ(program_of(hello_with_versions("1.2.3")), "1.2.3");
    const std::vector<std::pair<Json, std::string>> wrong{
        {range(newest + 1, newest + 2), "versions 5 to 6 of the rendezvous (Incast 1.2.3), "},
        {range(newest - 2, newest - 1), "versions 2 to 3 of the rendezvous (Incast 1.2.3), "},
        {Json{{"protocol", newest + 1}}, "version 5 of the rendezvous, "},
        {range(newest + 1, newest), "an unknown version of the rendezvous (Incast 1.2.3), "},
        {range(0, std::uint64_t{1} << 32), "an unknown version of the rendezvous (Incast 1.2.3), "},
        {range("old", newest), "an unknown version of the rendezvous (Incast 1.2.3), "},
        {Json{{"protocol", newest + 1}, {"version", "v\n"}}, "version 5 of the rendezvous, "},
        {Json{{"protocol", newest + 1}, {"version", std::string(40, '1')}}, "version 5 of the rendezvous, "},
        {Json::object(), "an unknown version of the rendezvous, "},
    };
    for (const auto& [hello, words] : wrong) {
        EXPECT_EQ(wrong_rendezvous_version(hello), "it speaks " + words + "this one version 4 (Incast " +
                                                       base::program_text(base::program_number()) + ")");
    }
}

TEST(Agreement, WhatAHelloSaysOfControlMessages) {
    const auto said = [](const std::string& control) {
        return control_versions_of(Json::parse(R"({"control":)" + control + "}"));
    };
    EXPECT_EQ(control_versions_of(Json::object()), (Versions{1, 1})) << "of 0.1.0";
    EXPECT_EQ(said("[2,3]"), (Versions{2, 3}));
    EXPECT_EQ(control_versions_of(hello_with_versions("1.2.3")), wire::control_versions);
    for (const char* nonsense :
         {"[3,2]", "[1]", "[1,2,3]", R"(["1",2])", "[-1,2]", "1", "null", "[1,1099511627776]", "[1.0,2]"}) {
        EXPECT_FALSE(said(nonsense)) << nonsense;
    }
}

TEST(Agreement, AdjacentVersionsMeet) {
    // n is what both speak: a program that also speaks the one before, one that also speaks the one behind.
    Agreement agreement(Versions{2, 3});
    EXPECT_EQ(agreement.take(Versions{2, 3}, ""), "");
    EXPECT_EQ(agreement.take(Versions{1, 2}, ""), "");
    EXPECT_EQ(agreement.take(Versions{2, 2}, ""), "");
    EXPECT_EQ(agreement.take(Versions{3, 4}, "1.2.3"),
              base::no_common_version("control messages", Versions{3, 4}, "1.2.3", Versions{2, 2}));
    EXPECT_EQ(agreement.decide(), 2U);
}

TEST(Agreement, TheNewestIsChosenAndStays) {
    Agreement agreement(Versions{2, 4});
    EXPECT_EQ(agreement.take(Versions{1, 3}, ""), "");
    EXPECT_EQ(agreement.decide(), 3U);
    EXPECT_NE(agreement.take(Versions{1, 2}, ""), "") << "who comes later speaks it, or stays out";
    EXPECT_EQ(agreement.take(Versions{3, 9}, ""), "");
    EXPECT_EQ(agreement.decide(), 3U);
}

TEST(Agreement, NoneInCommonIsOneLineWithBothSides) {
    Agreement agreement(Versions{1, 2});
    const std::string here = "this one versions 1 to 2 (Incast " + base::program_text(base::program_number()) + ")";
    EXPECT_EQ(agreement.take(Versions{3, 4}, "1.2.3"),
              "it speaks versions 3 to 4 of control messages (Incast 1.2.3), " + here);
    EXPECT_EQ(agreement.take({}, ""), "it speaks an unknown version of control messages, " + here);
    EXPECT_EQ(agreement.decide(), 2U) << "who was refused decides nothing";
}

TEST(Agreement, ANodeTakesWhatItSpeaks) {
    std::uint8_t version = 9;
    EXPECT_TRUE(take_decision(Json{{"control", 3U}}, version, {2, 3}).ok());
    EXPECT_EQ(version, 3);
    EXPECT_TRUE(take_decision(Json::object(), version, {1, 2}).ok());
    EXPECT_EQ(version, 1) << "a coordinator of 0.1.0";
    EXPECT_EQ(take_decision(Json{{"control", 4U}}, version, {2, 3}).error().message,
              "the run speaks version 4 of control messages, this program 2 to 3");
    EXPECT_FALSE(take_decision(Json{{"control", 258U}}, version, {2, 300}).ok());
    EXPECT_FALSE(take_decision(Json{{"control", "2"}}, version, {2, 3}).ok());
    EXPECT_EQ(version, 1);
}

}  // namespace
}  // namespace incast::runtime
