// The suite is complete: every clause of the documentation has a test, every test a clause and a row in the table, for
// every transport.
#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "conformance.h"
#include "transport/builtin/builtin.h"

namespace incast::conformance {

INSTANTIATE_TEST_SUITE_P(Builtin, Conformance, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& each) { return each.param.name(); });

namespace {

std::set<std::string> conformance_tests() {
    std::set<std::string> tests;
    const auto* all = testing::UnitTest::GetInstance();
    for (int i = 0; i < all->total_test_suite_count(); ++i) {
        const auto* suite = all->GetTestSuite(i);
        if (std::string(suite->name()) != "Builtin/Conformance") continue;
        for (int j = 0; j < suite->total_test_count(); ++j) {
            const std::string name = suite->GetTestInfo(j)->name();
            tests.insert(name.substr(0, name.find('/')));
        }
    }
    return tests;
}

std::string read(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

TEST(ConformanceTable, HasOneRowPerTestAndTransport) {
    const std::set<std::string> tests = conformance_tests();
    EXPECT_GT(tests.size(), 30u);
    for (const transport::Descriptor* each : tested_transports()) {
        SCOPED_TRACE(each->name);
        std::set<std::string> rows;
        for (const auto& [test, outcomes] : expected_outcomes(std::string(each->name)))
            rows.insert(test);
        EXPECT_EQ(rows, tests) << expected_file(std::string(each->name));
    }
}

TEST(ConformanceTable, EveryClauseHasATestAndEveryTestAClause) {
    if (outside()) GTEST_SKIP() << looks_at_the_tree;
    std::set<std::string> tested;
    for (const std::string& test : conformance_tests())
        tested.insert("TC-" + test.substr(3, test.find('_', 3) - 3));
    std::set<std::string> written;
    const std::string text = read("docs/transport-contract.md");
    const std::regex clause(R"(\*\*(TC-[A-Z]\d+)\*\*(?! \(planned\)))");
    for (auto it = std::sregex_iterator(text.begin(), text.end(), clause); it != std::sregex_iterator(); ++it) {
        written.insert((*it)[1].str());
    }
    EXPECT_EQ(tested, written);
}

TEST(TransportList, EveryTransportRunsHere) {
    std::string missing;
    for (const transport::Descriptor* each : tested_transports()) {
        if (const std::string why = missing_for(*each); !why.empty())
            missing += std::string(each->name) + " is not run: " + why + "\n";
    }
    if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(TransportList, WhatIsSaidOfATransportFits) {
    for (const transport::Descriptor* each : tested_transports()) {
        SCOPED_TRACE(each->name);
        EXPECT_EQ(transport::find_transport(each->name), each) << "its name is its own";
        const transport::Traits& traits = each->traits;
        EXPECT_TRUE(traits.in_process || !traits.simulated);
        EXPECT_FALSE(traits.in_process && traits.rank_across > 0) << "no node of it can be elsewhere";
        const auto has = [&](std::string_view name) {
            return std::ranges::find(each->settings, name, &base::Setting::name) != each->settings.end();
        };
        EXPECT_TRUE(traits.bind.empty() || has(traits.bind)) << traits.bind;
        EXPECT_TRUE(!traits.shares_memory() || has("stores"));
    }
    const transport::Descriptor& here = transport::chosen_transport(false);
    const transport::Descriptor& across = transport::chosen_transport(true);
    EXPECT_GT(here.traits.rank_here, 0U);
    EXPECT_GT(across.traits.rank_across, 0U);
    EXPECT_TRUE(here.traits.shares_memory()) << "nothing is faster on one host";
}

TEST(TransportDocs, SettingsAreThoseOfTheCode) {
    if (outside()) GTEST_SKIP() << looks_at_the_tree;
    for (const transport::Descriptor& builtin : transport::builtin_transports()) {
        const std::string path = "docs/transports/" + std::string(builtin.name) + ".md";
        const std::string text = read(path);
        ASSERT_NE(text, "") << path;
        std::string table = builtin.settings.empty() ? "None.\n" : base::table_head();
        for (const base::Setting& setting : builtin.settings)
            table += base::table_row(setting);
        EXPECT_NE(text.find("## Settings\n\n" + table), std::string::npos)
            << path << " must hold, after '## Settings':\n\n"
            << table;
        for (const char* heading : {"## Features\n", "## Limitations\n"})
            EXPECT_NE(text.find(heading), std::string::npos) << path;
    }
}

}  // namespace
}  // namespace incast::conformance
