#include "runtime/record/record_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/full_disk.h"

namespace incast::runtime {
namespace {

class RecordFiles : public testing::Test {
public:
    ~RecordFiles() override { std::filesystem::remove_all(folder_); }

protected:
    RecordFiles() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-records-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        file_ = folder_ / "lines";
    }
    static std::string read(const std::filesystem::path& file) {
        std::ostringstream text;
        text << std::ifstream(file).rdbuf();
        return text.str();
    }
    std::filesystem::path folder_;
    std::filesystem::path file_;
};

TEST_F(RecordFiles, WithoutRoomOnlyWholeRecordsAreThereAndItGoesOnWhenThereIsRoom) {
    Result<RecordFile> file = RecordFile::create(file_);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_TRUE(file->append("first\n"));
    {
        const sinks::FullDisk full(9);
        EXPECT_FALSE(file->append("second\n"));
        EXPECT_EQ(read(file_), "first\n");
        EXPECT_FALSE(file->append("third\n"));
        EXPECT_FALSE(file->well());
        EXPECT_EQ(file->missing(), 2U);
        EXPECT_EQ(file->reason(), "File too large");
        EXPECT_TRUE(file->append("4\n")) << "there is room for a shorter one";
    }
    EXPECT_TRUE(file->append("fifth\n"));
    EXPECT_TRUE(file->well());
    EXPECT_EQ(file->missing(), 2U);
    EXPECT_EQ(file->bytes(), 14U);
    EXPECT_EQ(read(file_), "first\n4\nfifth\n");
}

TEST_F(RecordFiles, AFolderThatIsNotThereIsNamedWithTheReason) {
    const Result<RecordFile> file = RecordFile::create(folder_ / "no" / "lines");
    ASSERT_FALSE(file.ok());
    EXPECT_THAT(file.error().message, testing::HasSubstr("no/lines' cannot be made: No such file or directory"));
}

TEST_F(RecordFiles, AFileIsReplacedWholeOrNotAtAll) {
    ASSERT_TRUE(write_whole(file_, "old").ok());
    const sinks::FullDisk full(4);
    const Result<Ok> written = write_whole(file_, "longer");
    ASSERT_FALSE(written.ok());
    EXPECT_THAT(written.error().message, testing::HasSubstr("lines' cannot be written: File too large"));
    EXPECT_EQ(read(file_), "old");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "lines.part"));
}

TEST_F(RecordFiles, ReservedRoomIsUsedAndWhatIsLeftOfItIsGivenBack) {
    ASSERT_TRUE(reserve_for(file_, 8192));
    EXPECT_GE(std::filesystem::file_size(folder_ / "lines.part"), 8192U);
    ASSERT_TRUE(write_whole(file_, "short").ok());
    EXPECT_EQ(read(file_), "short");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "lines.part"));
    const sinks::FullDisk full(100);
    EXPECT_FALSE(reserve_for(file_, 8192));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "lines.part"));
}

}  // namespace
}  // namespace incast::runtime
