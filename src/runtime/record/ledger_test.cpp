#include "runtime/record/ledger.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/full_disk.h"

namespace incast::runtime {
namespace {

using testing::HasSubstr;

class Ledger : public testing::Test {
public:
    ~Ledger() override { std::filesystem::remove_all(folder_); }

protected:
    Ledger() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-ledger-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        file_ = folder_ / "ledger.bin";
    }
    std::filesystem::path folder_;
    std::filesystem::path file_;
};

TEST_F(Ledger, WhatIsCommittedIsReadBack) {
    {
        const Result<std::unique_ptr<LedgerFile>> ledger = LedgerFile::create(file_, 7, 63);
        ASSERT_TRUE(ledger.ok()) << ledger.error().message;
        (*ledger)->view_changed(5 * ps_per_s, 1, Peer{2}, 1, wire::Change::up, protocol::Cause::joined);
        (*ledger)->committed({.mep = 0, .bu = 3, .attempt = 1, .view = 1});
        (*ledger)->view_changed(6 * ps_per_s, 2, Peer{2}, 1, wire::Change::dead, protocol::Cause::silent);
        (*ledger)->committed({.mep = 1, .bu = 1, .attempt = 2, .redelivered = 1, .flagged_sources = 4, .view = 2});
        (*ledger)->view_changed(7 * ps_per_s, 3, Peer{2}, 2, wire::Change::up, protocol::Cause::joined);
        (*ledger)->committed({.mep = 3, .bu = 1, .attempt = 1, .view = 3});
    }
    std::vector<LedgerRecord> records;
    const Result<LedgerSummary> summary =
        read_ledger(file_, [&records](const LedgerRecord& record) { records.push_back(record); });
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_EQ(summary->commits, 3U);
    EXPECT_EQ(summary->distinct_meps, 3U);
    EXPECT_EQ(summary->committed_below, 2U) << "MEP 2 is not there";
    EXPECT_EQ(summary->flagged, 1U);
    EXPECT_EQ(summary->redelivered, 1U);
    EXPECT_EQ(summary->losses, 1U);
    EXPECT_EQ(summary->returns, 1U);
    ASSERT_EQ(records.size(), 6U);
    EXPECT_EQ(records[3].node, 1U);
    EXPECT_EQ(records[3].attempt, 2U);
    EXPECT_EQ(records[3].value, 4U);
    EXPECT_EQ(records[2].time, static_cast<std::uint64_t>(6 * ps_per_s));
}

TEST_F(Ledger, GrowsPastItsWindows) {
    constexpr std::uint64_t n = 100'000;
    {
        const Result<std::unique_ptr<LedgerFile>> ledger = LedgerFile::create(file_, 7, 63);
        ASSERT_TRUE(ledger.ok());
        for (std::uint64_t mep = 0; mep < n; ++mep) {
            (*ledger)->committed({.mep = mep});
        }
        EXPECT_TRUE((*ledger)->well());
    }
    EXPECT_EQ(std::filesystem::file_size(file_), 4096 + n * sizeof(LedgerRecord));
    EXPECT_EQ(read_ledger(file_, {})->committed_below, n);
}

TEST_F(Ledger, SecondCommitsShow) {
    {
        const Result<std::unique_ptr<LedgerFile>> ledger = LedgerFile::create(file_, 7, 63);
        (*ledger)->committed({.mep = 0});
        (*ledger)->committed({.mep = 0});
    }
    const Result<LedgerSummary> summary = read_ledger(file_, {});
    EXPECT_EQ(summary->commits, 2U);
    EXPECT_EQ(summary->distinct_meps, 1U);
}

/// EB-F4: after kill -9 of the event manager the committed ledger is readable.
TEST_F(Ledger, EB_F4_SurvivesItsProcess) {
    constexpr std::uint64_t n = 50'000;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const Result<std::unique_ptr<LedgerFile>> ledger = LedgerFile::create(file_, 7, 63);
        for (std::uint64_t mep = 0; mep < n; ++mep) {
            (*ledger)->committed({.mep = mep});
        }
        raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const Result<LedgerSummary> summary = read_ledger(file_, {});
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_EQ(summary->committed_below, n);
}

TEST_F(Ledger, OtherFilesAreRefused) {
    EXPECT_THAT(read_ledger(file_, {}).error().message, HasSubstr("cannot be read"));
    std::ofstream(file_) << std::string(8192, 'x');
    EXPECT_THAT(read_ledger(file_, {}).error().message, HasSubstr("not a ledger"));
    {
        const Result<std::unique_ptr<LedgerFile>> ledger = LedgerFile::create(file_, 7, 63);
        (*ledger)->committed({.mep = 0});
        (*ledger)->committed({.mep = 1});
    }
    std::filesystem::resize_file(file_, 4096 + sizeof(LedgerRecord));
    EXPECT_THAT(read_ledger(file_, {}).error().message, HasSubstr("1 records before its count"));
}

TEST_F(Ledger, AFolderThatCannotBeWrittenIsAnError) {
    EXPECT_THAT(LedgerFile::create(folder_ / "none" / "ledger.bin", 1, 1).error().message, HasSubstr("cannot be made"));
}

TEST_F(Ledger, WhatAFullDiskCostsIsCountedAndItGoesOnWhenThereIsRoom) {
    constexpr std::uint64_t first_window = 32768;
    constexpr std::uint64_t there = first_window + 2048 + 128;  // a smaller window, and a page
    {
        const Result<std::unique_ptr<LedgerFile>> ledger = LedgerFile::create(file_, 1, 1);
        ASSERT_TRUE(ledger.ok()) << ledger.error().message;
        std::uint64_t mep = 0;
        {
            const sinks::FullDisk full(4096 + (1U << 20U) + (1U << 16U) + 4096 + 100);
            while (mep < there + 1000) {
                (*ledger)->committed({.mep = mep++, .attempt = 1});
            }
            EXPECT_FALSE((*ledger)->well());
            EXPECT_EQ((*ledger)->reason(), "File too large");
        }
        while (mep < there + 2000) {
            (*ledger)->committed({.mep = mep++, .attempt = 1});
        }
        EXPECT_TRUE((*ledger)->well());
        EXPECT_EQ((*ledger)->missing(), 1024U);
    }
    const Result<LedgerSummary> summary = read_ledger(file_, {});
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_EQ(summary->distinct_meps, there + 2000 - 1024);
    EXPECT_EQ(summary->committed_below, there);
    EXPECT_EQ(summary->missing, 1024U);
    EXPECT_EQ(summary->reason, "File too large");
}

TEST_F(Ledger, ADiskThatIsFullFromTheStartIsTheReason) {
    const sinks::FullDisk full(5000);
    const Result<std::unique_ptr<LedgerFile>> ledger = LedgerFile::create(file_, 1, 1);
    ASSERT_FALSE(ledger.ok());
    EXPECT_THAT(ledger.error().message, HasSubstr("File too large"));
    EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace incast::runtime
