#include "runtime/sources/recorded_shapes.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace incast::sources {
namespace {

class RecordedShapes : public testing::Test {
protected:
    std::string write(const std::string& name, const std::string& content) {
        std::filesystem::create_directories(folder_);
        std::ofstream(folder_ / name) << content;
        return (folder_ / name).string();
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    std::filesystem::path folder_ =
        std::filesystem::path(testing::TempDir()) /
        (std::string("incast-") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(RecordedShapes, ReadsTheSameHistogramFromTomlAndCsv) {
    const auto toml =
        read_size_histogram(write("sizes.toml", "# made up\nedges = [0, 100, 1000]\nweights = [3, 1.0]\n"));
    const auto csv = read_size_histogram(write("sizes.csv", "edge,weight\n0,3\n\n100, 1 # most\n1000\n"));
    ASSERT_TRUE(toml) << toml.error().message;
    ASSERT_TRUE(csv) << csv.error().message;
    EXPECT_DOUBLE_EQ((*toml)->mean(), 0.75 * 50 + 0.25 * 550);
    EXPECT_DOUBLE_EQ((*csv)->mean(), (*toml)->mean());
    EXPECT_DOUBLE_EQ((*csv)->quantile(0.75 / 2), 50);
    EXPECT_DOUBLE_EQ((*csv)->quantile(0.875), 550);
    EXPECT_EQ((*csv)->largest(), 1000);
}

TEST_F(RecordedShapes, AnErrorNamesTheFileAndTheLine) {
    const auto fails = [&](const std::string& name, const std::string& content, const std::string& says) {
        const std::string file = write(name, content);
        const auto read = read_size_histogram(file);
        ASSERT_FALSE(read) << content;
        EXPECT_NE(read.error().message.find(file), std::string::npos) << read.error().message;
        EXPECT_NE(read.error().message.find(says), std::string::npos) << read.error().message;
    };
    fails("a.csv", "0,1\n100,x\n200\n", "line 2");
    fails("a.csv", "0,1\n100,1\n", "last line");
    fails("a.csv", "0,1\n100\n200,1\n", "line 3");
    fails("a.csv", "", "last line");
    fails("a.csv", "100,1\n50\n", "ascend");
    fails("a.toml", "edges = [0, 1\n", "not TOML");
    fails("a.toml", "edges = [0, 1]\n", "weights");
    fails("a.toml", "edges = [0, \"x\"]\nweights = [1]\n", "no number");
    EXPECT_FALSE(read_size_histogram(folder_ / "absent.csv"));
    EXPECT_FALSE(read_size_histogram(folder_));
}

TEST_F(RecordedShapes, ReadsATraceOfGaps) {
    const auto trace = read_arrival_trace(write("gaps.txt", "# ns\n100\n300\n0\n"));
    ASSERT_TRUE(trace) << trace.error().message;
    EXPECT_EQ(*trace->gaps, (std::vector<double>{0.75, 2.25, 0}));
    EXPECT_DOUBLE_EQ(trace->rate_hz, 3e9 / 400);
    EXPECT_FALSE(read_arrival_trace(write("none.txt", "0\n0\n")));
    EXPECT_FALSE(read_arrival_trace(write("none.txt", "1\n-1\n")));
    EXPECT_FALSE(read_arrival_trace(write("none.txt", "1 2\n")));
}

}  // namespace
}  // namespace incast::sources
