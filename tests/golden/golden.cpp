#include "golden.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace incast::golden {

void Transcript::add(std::string_view note, std::span<const std::byte> bytes) {
    std::string line(note);
    for (std::size_t at = 0; at < bytes.size(); ++at)
        line += fmt::format("{}{:02x}", at % 8 == 0 ? " " : "", static_cast<unsigned>(bytes[at]));
    lines_.push_back(std::move(line));
}

void Transcript::expect(std::string_view name) const {
    const std::string path = fmt::format("tests/golden/{}.txt", name);
    if (const char* const wanted = std::getenv("INCAST_GOLDEN");
        wanted != nullptr && std::string_view(wanted) == "write") {
        std::ofstream file(path);
        for (const std::string& line : lines_)
            file << line << '\n';
        return;
    }
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << " cannot be read";
    std::vector<std::string> golden;
    for (std::string line; std::getline(file, line);)
        golden.push_back(line);
    for (std::size_t at = 0; at < std::min(golden.size(), lines_.size()); ++at)
        ASSERT_EQ(lines_[at], golden[at]) << path << ":" << at + 1 << " (docs/testing.md says what to do)";
    EXPECT_EQ(lines_.size(), golden.size()) << path;
}

}  // namespace incast::golden
