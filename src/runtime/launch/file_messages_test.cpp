#include "runtime/launch/file_messages.h"

#include <array>
#include <fstream>
#include <iterator>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace incast::runtime {
namespace {

class Files : public testing::Test {
public:
    ~Files() override { std::filesystem::remove_all(folder_); }

protected:
    Files() {
        connect();
        folder_ = testing::TempDir() + "/files-" + std::to_string(getpid());
        std::filesystem::create_directory(folder_);
    }
    void connect() {
        std::array<int, 2> fds{};
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
        here_ = Channel(os::Descriptor(fds.front()), {max_sample_frame(1), max_small_frame});
        there_ = Channel(os::Descriptor(fds.back()), {max_coordinator_frame});
    }
    static std::string content_of(const std::filesystem::path& file) {
        std::ifstream in(file, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    Channel here_;
    Channel there_;
    std::filesystem::path folder_;
};

TEST_F(Files, ArriveAsTheyWere) {
    std::string content;
    for (std::uint32_t i = 0; i < 300'000; ++i)
        content.push_back(static_cast<char>(i * 7 % 251));
    std::ofstream(folder_ / "one", std::ios::binary) << content;
    std::thread sender([this] {
        there_.send({{"type", "sample"}});  // which was under way
        send_file(there_, folder_ / "one");
        there_.close();
    });
    EXPECT_TRUE(receive_file(here_, folder_ / "two", 30'000));
    sender.join();
    EXPECT_EQ(content_of(folder_ / "two"), content);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

TEST_F(Files, ThatDoNotComeWholeLeaveNothing) {
    const Json part{{"type", "file"}, {"part", "00ff"}};
    const Json longer{{"type", "file_end"}, {"bytes", 3}};
    const Json none{{"type", "file_end"}, {"bytes", 0}};
    const Json no_digits{{"type", "file"}, {"part", "0g"}};
    const Json no_text{{"type", "file"}, {"part", 7}};
    using Messages = std::vector<Json>;
    for (const Messages& messages :
         {Messages{}, Messages{part}, Messages{part, longer}, Messages{none}, Messages{no_digits}, Messages{no_text}}) {
        connect();
        for (const Json& message : messages)
            there_.send(message);
        there_.close();
        EXPECT_FALSE(receive_file(here_, folder_ / "two", 30'000));
        EXPECT_TRUE(std::filesystem::is_empty(folder_));
    }
}

TEST_F(Files, OfSilentOnesAreNotWaitedForLong) {
    EXPECT_FALSE(receive_file(here_, folder_ / "two", 1));
    send_file(there_, folder_ / "none");
    EXPECT_EQ(there_.queued(), 0U);
}

}  // namespace
}  // namespace incast::runtime
