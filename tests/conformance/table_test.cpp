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
    std::set<std::string> wanted;
    for (const std::string& test : conformance_tests()) {
        for (const transport::Descriptor& builtin : transport::builtin_transports())
            wanted.insert(test + " | " + std::string(builtin.name));
    }
    std::set<std::string> rows;
    std::istringstream file(read("tests/conformance/expected.txt"));
    const std::regex row(R"(^(\w+) +\| (\w+) +\|.*$)");
    for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (line.empty() || line[0] == '#') continue;
        ASSERT_TRUE(std::regex_match(line, match, row)) << line;
        EXPECT_TRUE(rows.insert(match[1].str() + " | " + match[2].str()).second) << "twice: " << line;
    }
    EXPECT_GT(rows.size(), 100u);
    EXPECT_EQ(rows, wanted);
}

TEST(ConformanceTable, EveryClauseHasATestAndEveryTestAClause) {
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

TEST(TransportList, WhatIsSaidOfATransportFits) {
    for (const transport::Descriptor& builtin : transport::builtin_transports()) {
        SCOPED_TRACE(builtin.name);
        EXPECT_EQ(transport::find_transport(builtin.name), &builtin) << "its name is its own";
        const transport::Traits& traits = builtin.traits;
        EXPECT_TRUE(traits.in_process || !traits.simulated);
        EXPECT_FALSE(traits.in_process && traits.rank_across > 0) << "no node of it can be elsewhere";
        const auto has = [&](std::string_view name) {
            return std::ranges::find(builtin.settings, name, &base::Setting::name) != builtin.settings.end();
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
