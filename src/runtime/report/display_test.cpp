#include "runtime/report/display.h"

#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/descriptor.h"

namespace incast::runtime {
namespace {

class Displays : public testing::Test {
protected:
    Displays() {
        std::signal(SIGPIPE, SIG_IGN);
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) == 0) {
            reading_ = os::Descriptor(ends[0]);
            writing_ = os::Descriptor(ends[1]);
        }
        display_.emplace(writing_.fd());
    }
    /// Whatever the display says until it ends.
    std::string end() {
        std::string text;
        std::thread reader([this, &text] {
            std::array<char, 4096> part;
            for (ssize_t n = 0; (n = ::read(reading_.fd(), part.data(), part.size())) > 0;) {
                text.append(part.data(), static_cast<std::size_t>(n));
            }
        });
        display_.reset();
        writing_.close();
        reader.join();
        return text;
    }
    os::Descriptor reading_;
    os::Descriptor writing_;
    std::optional<Display> display_;
};

TEST_F(Displays, AReaderThatDoesNotReadHoldsUpNothingAndGetsWholeLinesLater) {
    const std::string sample(10'000, 's');
    for (int index = 0; index < 1000; ++index) {
        display_->line(sample, Display::Worth::while_read);
    }
    display_->line("last");
    const std::string text = end();
    EXPECT_GT(text.size(), std::size_t{1} << 20U);
    EXPECT_LT(text.size(), std::size_t{1} << 21U) << "samples are left out while nobody reads";
    ASSERT_TRUE(text.ends_with("s\nlast\n"));
    EXPECT_EQ((text.size() - 5) % (sample.size() + 1), 0U) << "whole lines";
}

TEST_F(Displays, AReaderThatIsGoneIsForgotten) {
    reading_.close();
    display_->line("one");
    display_->line("two");
    display_.reset();
}

TEST_F(Displays, AFullDiskCostsLinesAndNothingElse) {
    const os::Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(full.is_open());
    Display display(full.fd());
    display.line("one");
    display.line("two");
}

}  // namespace
}  // namespace incast::runtime
