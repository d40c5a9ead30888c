// What comes from other processes of the same user is judged before it is used, whoever they are.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include <sys/mman.h>

#include "softrio/api/calls.h"
#include "softrio/options.h"
#include "softrio/shm/system.h"
#include "support/softrio_api.h"

namespace incast::softrio::api {
namespace {

constexpr std::uint64_t all_ones = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t four_gib = std::uint64_t{1} << 32;
constexpr std::uint32_t large = 3U << 20;

/// A port that other processes may use, and a connection to whoever has it open.
class SharedPorts : public testing::Test {
public:
    ~SharedPorts() override { clear_variable("RIO_DESTID"); }

protected:
    SharedPorts() {
        set_variable("RIO_DESTID", "5");
        own_.emplace(0);
        const auto options = options_of_environment();
        EXPECT_TRUE(options);
        name_ = share_name(options->fabric, 5);
        socket_ = connect_to(name_);
        EXPECT_TRUE(socket_.is_open());
    }
    /// The answer's status; std::nullopt: there is none, the connection was closed.
    std::optional<int> ask(const Call& call, int file = -1) {
        Answer answer;
        std::vector<std::byte> more;
        if (!send_all(socket_.fd(), bytes_of(call), file) || !receive_all(socket_.fd(), bytes_of(answer)))
            return std::nullopt;
        more.resize(answer.bytes);
        return receive_all(socket_.fd(), more) ? std::optional<int>(answer.status) : std::nullopt;
    }
    std::optional<int> transfer(bool writes, std::uint64_t address, std::uint64_t bytes, int file) {
        return ask({Operation::transfer, 0, {writes ? 3U : 2U, 0, 5, address, bytes}}, file);
    }
    [[nodiscard]] bool is_closed() const {
        std::byte one{};
        pollfd polled{socket_.fd(), POLLIN, 0};
        return ::poll(&polled, 1, deadline_ms) == 1 && ::recv(socket_.fd(), &one, 1, MSG_DONTWAIT) == 0;
    }
    [[nodiscard]] bool works() const {
        const os::Descriptor another = connect_to(name_);
        const Call call{Operation::destid};
        Answer answer;
        return send_all(another.fd(), bytes_of(call)) && receive_all(another.fd(), bytes_of(answer)) &&
               answer.status == 0 && answer.values[0] == 5;
    }

    Fabric fabric_{"", 1};
    std::optional<Mport> own_;
    std::string name_;
    os::Descriptor socket_;
};

TEST_F(SharedPorts, ACallThatSaysItIsLongIsNotWaitedFor) {
    for (const std::uint64_t bytes : {four_gib, most_call_bytes + 1, all_ones}) {
        socket_ = connect_to(name_);
        Call call{Operation::transfer, 0, {3, 0, 5, 0, bytes}};
        call.bytes = bytes;
        ASSERT_TRUE(send_all(socket_.fd(), bytes_of(call)));
        EXPECT_TRUE(is_closed()) << bytes;
    }
    EXPECT_TRUE(works());
}

TEST_F(SharedPorts, NumbersThatMakeNoSenseAreAnsweredAndChangeNothing) {
    for (std::uint32_t operation = 0; operation <= static_cast<std::uint32_t>(Operation::receive) + 2; ++operation) {
        for (const std::uint64_t value : {all_ones, four_gib + large, all_ones - 4096, all_ones / 2}) {
            Call call{static_cast<Operation>(operation), static_cast<std::uint32_t>(value)};
            call.values.fill(value);
            EXPECT_TRUE(ask(call)) << operation << " with " << value;
        }
    }
    EXPECT_TRUE(works());
    // The number of no handle owns nothing; sizes have 32 bits.
    const std::uint64_t any = RIOMP_MAP_ANY_ADDR;
    EXPECT_EQ(ask({Operation::allocate, 0, {200, 4096, any}}), -EBADF);
    EXPECT_EQ(ask({Operation::map_window, 0, {200, any, 4096, any}}), -EBADF);
    EXPECT_EQ(ask({Operation::allocate, 0, {0, four_gib, any}}), -EINVAL);
    EXPECT_EQ(ask({Operation::map_window, 0, {0, any, four_gib, any}}), -EINVAL);
    EXPECT_EQ(ask({Operation::read_registers, 0, {5, 0, four_gib}}), -EINVAL);
    // Memory is where it was.
    const OpenWindow first(*own_, 4096);
    const OpenWindow second(*own_, 4096);
    EXPECT_NE(first.handle, second.handle);
    EXPECT_EQ(write_to(*own_, 5, second.base, {7}), 0);
    EXPECT_TRUE(arrives([&] { return second.data[0] == 7; }));
}

TEST_F(SharedPorts, LargeTransfersComeInMemoryThatCannotBeTakenBack) {
    const OpenWindow window(*own_, 2 * large);
    const auto sealed = shm::make_memory(large);
    ASSERT_TRUE(sealed);
    std::vector<std::byte> bytes(large, std::byte{9});
    ASSERT_EQ(::pwrite(sealed->file.fd(), bytes.data(), large, 0), ssize_t{large});
    EXPECT_EQ(transfer(true, window.base + 1, large, sealed->file.fd()), 0);
    EXPECT_EQ(std::count(window.data, window.data + window.bytes, 9), large);
    std::memset(window.data, 3, window.bytes);
    EXPECT_EQ(transfer(false, window.base, large, sealed->file.fd()), 0);
    ASSERT_EQ(::pread(sealed->file.fd(), bytes.data(), large, 0), ssize_t{large});
    EXPECT_EQ(std::ranges::count(bytes, std::byte{3}), large);

    EXPECT_EQ(transfer(true, window.base, large, -1), -EINVAL) << "there is no memory";
    EXPECT_EQ(transfer(true, window.base, 2 * large, sealed->file.fd()), -EINVAL) << "it is shorter than said";
    const os::Descriptor open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(open.fd(), large), 0);
    EXPECT_EQ(transfer(true, window.base, large, open.fd()), -EINVAL) << "it could become shorter";
    const os::Descriptor none(::open("/dev/zero", O_RDWR | O_CLOEXEC));
    EXPECT_EQ(transfer(true, window.base, large, none.fd()), -EINVAL) << "it is a device";
    EXPECT_EQ(window.data[0], 3);
    EXPECT_TRUE(works());
}

TEST_F(SharedPorts, DescriptorsThatNobodyAskedForAreClosed) {
    const auto open_files = [] {
        const std::filesystem::directory_iterator files("/proc/self/fd");
        return std::distance(begin(files), end(files));
    };
    EXPECT_EQ(ask({Operation::destid}), 0);
    const auto before = open_files();
    for (int tries = 0; tries < 8; ++tries) {
        const Call call{Operation::destid};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(2 * sizeof(int))> control{};
        iovec part{const_cast<Call*>(&call), sizeof call};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(2 * sizeof(int));
        const std::array<int, 2> two{socket_.fd(), socket_.fd()};
        std::memcpy(CMSG_DATA(header), two.data(), sizeof two);
        ASSERT_EQ(::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL), ssize_t{sizeof call});
        Answer answer;
        ASSERT_TRUE(receive_all(socket_.fd(), bytes_of(answer)));
    }
    EXPECT_EQ(open_files(), before);
}

/// The rules of a transfer do not depend on who makes it: it lies in one window, or nothing of it is moved.
TEST_F(SharedPorts, TransfersOfOtherProcessesAreWholeWhateverTheirSize) {
    SKIP_ON_UDP("packets are judged one by one");
    const OpenWindow window(*own_, large);
    Child other([&](const Child::Line&) {
        set_variable("RIO_DESTID", "5");
        const Mport mport(0);
        std::vector<std::uint8_t> bytes(large, 9);
        EXPECT_EQ(write_to(mport, 5, window.base + 8, bytes), -EIO);
        const auto read = [&](std::uint64_t address) {
            return riomp_dma_read(mport, 5, address, bytes.data(), large, RIO_DIRECTIO_TRANSFER_SYNC, nullptr);
        };
        EXPECT_EQ(read(window.base + 8), -EIO);
        EXPECT_EQ(std::ranges::count(bytes, 9), large);
        EXPECT_EQ(read(window.base), 0);
        EXPECT_EQ(std::ranges::count(bytes, 0), large);
        bytes.assign(large, 7);
        EXPECT_EQ(write_to(mport, 5, window.base, bytes), 0);
    });
    EXPECT_TRUE(other.finish());
    EXPECT_EQ(std::count(window.data, window.data + window.bytes, 7), large);
}

}  // namespace
}  // namespace incast::softrio::api
