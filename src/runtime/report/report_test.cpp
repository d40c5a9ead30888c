#include "runtime/report/report.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "support/full_disk.h"

namespace incast::runtime {
namespace {

using testing::HasSubstr;

class Reporting : public testing::Test {
public:
    ~Reporting() override { std::filesystem::remove_all(folder_); }

protected:
    Reporting() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-report-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    std::unique_ptr<Reporter> open(bool replace = false) {
        Result<std::unique_ptr<Reporter>> reporter = Reporter::open(folder_, Progress::none, replace);
        refusal_ = reporter ? "" : reporter.error().message;
        return reporter ? std::move(*reporter) : nullptr;
    }
    std::string read(const char* name) {
        std::ostringstream text;
        text << std::ifstream(folder_ / name).rdbuf();
        return text.str();
    }
    std::filesystem::path folder_;
    std::string refusal_;
};

TEST_F(Reporting, AFolderBelongsToOneRunAtATime) {
    const std::unique_ptr<Reporter> first = open();
    ASSERT_TRUE(first) << refusal_;
    first->node_sample({{"t", 1}});
    EXPECT_FALSE(open());
    EXPECT_THAT(refusal_, HasSubstr("a run is at work there; allowed: another folder"));
    EXPECT_FALSE(open(true)) << "not even by force";
    EXPECT_EQ(read("samples.jsonl"), "{\"t\":1}\n");
}

TEST_F(Reporting, AnOldRunIsKeptUnlessItIsToBeReplacedAndThenNothingOfItStays) {
    ASSERT_TRUE(open());
    std::ofstream(folder_ / "result.json") << "{}";
    std::ofstream(folder_ / "dips.json") << "{}";
    std::ofstream(folder_ / "notes.txt") << "mine";
    EXPECT_FALSE(open());
    EXPECT_THAT(refusal_, HasSubstr("holds result.json and other files of another run"));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "result.json"));
    const std::unique_ptr<Reporter> second = open(true);
    ASSERT_TRUE(second) << refusal_;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "result.json"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "dips.json"));
    EXPECT_EQ(read("notes.txt"), "mine");
}

TEST_F(Reporting, ARefusalLeavesNothing) {
    std::ofstream(folder_ / "config.toml") << "[run]";
    EXPECT_FALSE(open());
    EXPECT_FALSE(std::filesystem::exists(folder_ / "log.txt"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "samples.jsonl"));
}

TEST_F(Reporting, WhatAFullDiskCostsIsSaidOnceAndListed) {
    const std::unique_ptr<Reporter> reporter = open();
    ASSERT_TRUE(reporter) << refusal_;
    EXPECT_TRUE(reporter->incomplete_files().empty());
    reporter->node_sample({{"t", 1}});
    {
        const sinks::FullDisk full(8);
        reporter->node_sample({{"t", 2}});
        reporter->node_sample({{"t", 3}});
        EXPECT_FALSE(reporter->write_file("config.toml", "longer than that"));
    }
    reporter->node_sample({{"t", 4}});
    reporter->node_sample({{"t", 5}});
    EXPECT_EQ(read("samples.jsonl"), "{\"t\":1}\n{\"t\":4}\n{\"t\":5}\n");
    const nlohmann::ordered_json files = reporter->incomplete_files();
    ASSERT_EQ(files.size(), 3U);
    EXPECT_EQ(files[0]["file"], "samples.jsonl");
    EXPECT_EQ(files[0]["missing"], 2);
    EXPECT_EQ(files[0]["reason"], "File too large");
    EXPECT_EQ(files[1]["file"], "log.txt") << "it could not tell of the samples";
    EXPECT_EQ(files[2]["file"], "config.toml");
    EXPECT_TRUE(files[2]["missing"].is_null());
    EXPECT_EQ(files[2]["reason"], "File too large");
    EXPECT_THAT(read("log.txt"), HasSubstr("samples.jsonl' is written again; 2 samples are missing"));
}

}  // namespace
}  // namespace incast::runtime
