#include "runtime/launch/commands.h"

#include <array>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace incast::runtime {
namespace {

class CommandsTest : public testing::Test {
public:
    CommandsTest() {
        std::string name = (std::filesystem::temp_directory_path() / "incast-commands-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    CommandsTest(const CommandsTest&) = delete;
    CommandsTest& operator=(const CommandsTest&) = delete;
    ~CommandsTest() override { std::filesystem::remove_all(folder_); }

protected:
    [[nodiscard]] std::filesystem::path file() const { return folder_ / CommandSocket::file_name; }
    [[nodiscard]] os::Descriptor ask(const std::string& text) const {
        os::Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        sockaddr_un to{};
        to.sun_family = AF_UNIX;
        file().string().copy(to.sun_path, sizeof to.sun_path - 1);
        EXPECT_EQ(::connect(made.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
        EXPECT_EQ(::send(made.fd(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
        return made;
    }
    static std::string said_to(const os::Descriptor& asker) {
        std::array<char, 4096> text{};
        const ssize_t size = ::recv(asker.fd(), text.data(), text.size(), MSG_DONTWAIT);
        return size <= 0 ? "" : std::string(text.data(), static_cast<std::size_t>(size));
    }

    std::filesystem::path folder_;
};

TEST_F(CommandsTest, ACommandIsHeardAndAnswered) {
    Result<CommandSocket> commands = CommandSocket::open(folder_);
    ASSERT_TRUE(commands) << commands.error().message;
    EXPECT_TRUE(commands->receive().empty());
    const os::Descriptor asker = ask(R"({"command": "out", "node": 3})");
    std::vector<CommandSocket::Request> asked = commands->receive();
    ASSERT_EQ(asked.size(), 1U);
    EXPECT_EQ(asked[0].message["node"], 3);
    CommandSocket::answer(asked[0].from, true, "node 3 is out");
    EXPECT_EQ(Json::parse(said_to(asker)), (Json{{"ok", true}, {"text", "node 3 is out"}}));
}

TEST_F(CommandsTest, WhatIsNoCommandIsNull) {
    Result<CommandSocket> commands = CommandSocket::open(folder_);
    ASSERT_TRUE(commands) << commands.error().message;
    const os::Descriptor first = ask("nonsense");
    const os::Descriptor second = ask("[1, 2]");
    const std::vector<CommandSocket::Request> asked = commands->receive();
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_TRUE(asked[0].message.is_null());
    EXPECT_TRUE(asked[1].message.is_null());
}

TEST_F(CommandsTest, OnlyTheOwnerMayAskAndTheFileGoesWithTheSocket) {
    {
        Result<CommandSocket> commands = CommandSocket::open(folder_);
        ASSERT_TRUE(commands) << commands.error().message;
        struct stat about{};
        ASSERT_EQ(::stat(file().c_str(), &about), 0);
        EXPECT_EQ(about.st_mode & 0777U, 0600U);
    }
    EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(CommandsTest, ThoseThatSayNothingMakeRoom) {
    Result<CommandSocket> commands = CommandSocket::open(folder_);
    ASSERT_TRUE(commands) << commands.error().message;
    std::vector<os::Descriptor> silent;
    for (int number = 0; number < 40; ++number) {
        silent.push_back(ask(""));
        (void)commands->receive();
    }
    const os::Descriptor asker = ask(R"({"command": "in", "node": 0})");
    EXPECT_EQ(commands->receive().size(), 1U);
}

TEST_F(CommandsTest, ALongPathAndAFileThatAKilledRunLeftAreNoMatter) {
    folder_ /= std::string(200, 'x');
    std::filesystem::create_directories(folder_);
    Result<CommandSocket> killed = CommandSocket::open(folder_);
    ASSERT_TRUE(killed) << killed.error().message;
    Result<CommandSocket> next = CommandSocket::open(folder_);
    EXPECT_TRUE(next) << next.error().message;
    folder_ = folder_.parent_path();
}

TEST_F(CommandsTest, ADirectoryThatIsNotThereIsAnError) {
    EXPECT_FALSE(CommandSocket::open(folder_ / "nothing"));
}

}  // namespace
}  // namespace incast::runtime
