#include "runtime/report/audit.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/allowance.h"

namespace incast::runtime {
namespace {

class Auditing : public testing::Test {
public:
    ~Auditing() override {
        reporter_.reset();
        std::filesystem::remove_all(folder_);
    }

protected:
    Auditing() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-audit-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        Result<std::unique_ptr<Reporter>> reporter = Reporter::open(folder_, Progress::none);
        reporter_ = std::move(*reporter);
    }
    [[nodiscard]] std::vector<nlohmann::json> entries() const {
        std::vector<nlohmann::json> found;
        std::ifstream file(folder_ / "audit.jsonl");
        for (std::string line; std::getline(file, line);) {
            found.push_back(nlohmann::json::parse(line));
        }
        return found;
    }
    [[nodiscard]] std::size_t lines_with(const std::string& text) const {
        std::size_t count = 0;
        std::ifstream file(folder_ / "log.txt");
        for (std::string line; std::getline(file, line);) {
            count += line.find(text) != std::string::npos ? 1 : 0;
        }
        return count;
    }

    std::filesystem::path folder_;
    std::unique_ptr<Reporter> reporter_;
};

TEST_F(Auditing, AFloodIsAFewLinesAndACount) {
    Audit audit(*reporter_, 0);
    for (int index = 0; index < 1000; ++index) {
        const std::string from = "10.0.0.1:" + std::to_string(index);
        audit.say(ps_per_s, Level::warning, "refused " + from, {"refused", {}, from, "version 5", nullptr});
    }
    audit.say(ps_per_s, Level::warning, "refused 10.0.0.2:1", {"refused", {}, "10.0.0.2:1", "wrong token", nullptr});
    EXPECT_EQ(lines_with("refused 10.0.0.1"), Audit::said_at_once);
    EXPECT_EQ(lines_with("refused 10.0.0.2"), 1U) << "another kind is no part of that flood";
    EXPECT_EQ(audit.next_deadline(), ps_per_s + Audit::span);
    audit.tick(ps_per_s + Audit::span);
    EXPECT_EQ(lines_with("980 more like it within 10.00 s, the last: refused 10.0.0.1:999"), 1U);
    EXPECT_EQ(audit.next_deadline(), time_never);
    std::uint64_t count = 0;
    for (const nlohmann::json& entry : entries()) {
        count += entry["count"].get<std::uint64_t>();
        EXPECT_EQ(entry["kind"], "refused");
        EXPECT_TRUE(entry["node"].is_null());
    }
    EXPECT_EQ(count, 1001U);
    EXPECT_EQ(entries().size(), Audit::said_at_once + 2U);
}

TEST_F(Auditing, WhatIsLeftIsSaidAtTheEnd) {
    Audit audit(*reporter_, ps_per_s);
    for (unsigned index = 0; index < Audit::said_at_once + 3; ++index) {
        audit.say(3 * ps_per_s, Level::warning, "node 4: again",
                  {"remark", 4, "", std::to_string(index), {{"meps", 2}}});
    }
    audit.finish(4 * ps_per_s);
    EXPECT_EQ(lines_with("3 more like it within 1.00 s, the last: node 4: again"), 1U);
    EXPECT_EQ(entries().back()["node"], 4);
    EXPECT_EQ(entries().back()["t"], 3.0);
    EXPECT_EQ(entries().back()["cost"]["meps"], 2);
}

TEST_F(Auditing, AnEntryMayHaveNoLine) {
    Audit audit(*reporter_, 0);
    audit.say(0, Level::info, "", {"back", 1, "", "\xff", nullptr});
    EXPECT_EQ(entries().size(), 1U);
    EXPECT_EQ(lines_with(""), 0U);
}

TEST(Allowances, GiveABurstAndThenARate) {
    base::Allowance allowance(3, ps_per_s);
    const Time now = 100 * ps_per_s;
    EXPECT_TRUE(allowance.take(now));
    EXPECT_TRUE(allowance.take(now));
    EXPECT_TRUE(allowance.take(now));
    EXPECT_FALSE(allowance.take(now));
    EXPECT_EQ(allowance.next(now), now + ps_per_s);
    EXPECT_TRUE(allowance.take(now + ps_per_s));
    EXPECT_FALSE(allowance.take(now + ps_per_s));
    EXPECT_EQ(allowance.next(now + 60 * ps_per_s), now + 60 * ps_per_s);
}

}  // namespace
}  // namespace incast::runtime
