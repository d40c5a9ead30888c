// What is left of a time limit in milliseconds, -1 for ever.
#pragma once

#include <climits>
#include <cstdint>
#include <ctime>

namespace incast::consumer {

class Limit {
public:
    explicit Limit(int timeout_ms) : end_(timeout_ms < 0 ? -1 : now_ms() + timeout_ms) {}

    [[nodiscard]] int left() const {
        if (end_ < 0) {
            return -1;
        }
        const std::int64_t left = end_ - now_ms();
        return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : static_cast<int>(left);
    }

    /// At most that much of it: a part of a longer wait.
    [[nodiscard]] int left_of(int most_ms) const {
        const int all = left();
        return all < 0 || all > most_ms ? most_ms : all;
    }

    static std::int64_t now_ms() {
        timespec time{};
        clock_gettime(CLOCK_MONOTONIC, &time);
        return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
    }

private:
    std::int64_t end_;
};

}  // namespace incast::consumer
