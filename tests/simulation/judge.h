// Where checkers put what they find: violations, the story of a replay, and marks that say what a run has exercised.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <incast/transport.h>

namespace incast::adversary {

struct Violation {
    Time time = 0;
    std::string rule;  // "EB-F3", "EB-C1" ...: docs/protocol.md
    std::string what;
};

/// How often something happened, by name. Iterated in order of the names.
using Marks = std::map<std::string, std::uint64_t, std::less<>>;

class Judge {
public:
    explicit Judge(bool tells_story) : tells_story_(tells_story) {}

    void set_time(Time now) { now_ = now; }
    [[nodiscard]] Time now() const { return now_; }

    template <class... Args>
    void violation(const char* rule, fmt::format_string<Args...> format, Args&&... args) {
        Violation found{now_, rule, fmt::format(format, std::forward<Args>(args)...)};
        story("VIOLATION of {}: {}", found.rule, found.what);
        violations_.push_back(std::move(found));
    }
    template <class... Args>
    void story(fmt::format_string<Args...> format, Args&&... args) {
        if (!tells_story_) return;
        fmt::print("{:14.3f} us  {}\n", static_cast<double>(now_) / static_cast<double>(ps_per_us),
                   fmt::format(format, std::forward<Args>(args)...));
    }
    void mark(std::string_view name, std::uint64_t count = 1) {
        const auto found = marks_.find(name);
        if (found != marks_.end()) {
            found->second += count;
        } else {
            marks_.emplace(name, count);
        }
    }

    [[nodiscard]] bool tells_story() const { return tells_story_; }
    [[nodiscard]] const std::vector<Violation>& violations() const { return violations_; }
    [[nodiscard]] const Marks& marks() const { return marks_; }

private:
    bool tells_story_;
    Time now_ = 0;
    std::vector<Violation> violations_;
    Marks marks_;
};

}  // namespace incast::adversary
