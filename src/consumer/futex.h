// Sleeping on words that another process writes, and waking who does (futex(2); several at once: Linux 5.16).
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace incast::consumer {

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == sizeof(std::uint32_t) && Word::is_always_lock_free);

/// A word to sleep on, as the kernel's struct futex_waitv has it, which older headers have not. Made by watch(); places
/// for many of them are left as they are.
struct Watched {
    std::uint64_t value;
    const Word* word;
    std::uint32_t flags;
    std::uint32_t zero;
};
static_assert(sizeof(Watched) == 24 && sizeof(Word*) == 8);

inline constexpr int most_watched = 128;        // FUTEX_WAITV_MAX
inline constexpr std::uint32_t futex_32 = 2;    // the word's size; it is of several processes
inline constexpr long waitv_call_number = 449;  // SYS_futex_waitv, on every architecture

/// Nobody sleeps while the word is another than this.
inline Watched watch(const Word& word, std::uint32_t value) {
    return {value, &word, futex_32, 0};
}

/// Whether the kernel, and what filters its calls, knows sleeping on several.
inline bool can_sleep_on_several() {
    return ::syscall(waitv_call_number, nullptr, 0, 0, nullptr, 0) < 0 && errno == EINVAL;
}

/// Until one of the words changes and its writer wakes, timeout_ms are over, or without cause. 0, or errno: EINTR.
/// With several, a signal whose handler was installed with SA_RESTART does not end it.
inline int sleep_on(const Watched* watched, int count, int timeout_ms) {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1'000'000L;
    if (until.tv_nsec >= 1'000'000'000L) {
        ++until.tv_sec;
        until.tv_nsec -= 1'000'000'000L;
    }
    const long slept = count == 1 ? ::syscall(SYS_futex, watched->word, FUTEX_WAIT_BITSET, watched->value, &until,
                                              nullptr, FUTEX_BITSET_MATCH_ANY)
                                  : ::syscall(waitv_call_number, watched, count, 0, &until, CLOCK_MONOTONIC);
    return slept >= 0 || errno == EAGAIN || errno == ETIMEDOUT ? 0 : errno;
}

/// One who sleeps on it.
inline void wake(const Word& word) {
    (void)::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace incast::consumer
