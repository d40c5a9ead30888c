// What SoftRIO costs beside what it is made of: rDMA writes against memcpy into the same memory, and round trips of a
// small write and a doorbell between two processes against the plainest round trips of this machine: a shared flag that
// both spin on, and a futex. Alternated pairs, medians; nothing is asserted.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <linux/futex.h>
#include <rapidio_mport_dma.h>
#include <rapidio_mport_mgmt.h>
#include <softrio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<std::uint32_t>;

constexpr int pairs = 21;
constexpr int rounds = 2000;                                 // of one measurement of round trips
constexpr std::size_t copied_bytes = std::size_t{64} << 20;  // by one measurement of copies
constexpr std::uint32_t window_bytes = 1 << 20;
constexpr std::uint64_t window_at = 0x1000'0000;
constexpr std::uint32_t small_write = 64;
constexpr did_val_t server = 1;
constexpr did_val_t client = 2;

void check(int error, const char* what) {
    if (error >= 0) return;
    std::fprintf(stderr, "%s: %s\n", what, std::strerror(-error));
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): it has one thread
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

struct Words {
    alignas(64) Word up;  // the client's turn when it equals `down`
    alignas(64) Word down;
};

void await_spinning(Word& word, std::uint32_t value) {
    while (word.load(std::memory_order_acquire) != value) {
    }
}

void await_sleeping(Word& word, std::uint32_t value) {
    for (std::uint32_t seen = word.load(); seen != value; seen = word.load())
        ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

void say(Word& word, std::uint32_t value, bool sleeps) {
    word.store(value, std::memory_order_release);
    if (sleeps) ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

/// One side, with a window and two handles: one that spins and one that sleeps, with doorbells of their own.
struct Side {
    explicit Side(did_val_t destid) {
        ::setenv("RIO_DESTID", std::to_string(destid).c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
        check(riomp_mgmt_mport_create_handle(0, O_NONBLOCK | SOFTRIO_ON_DEMAND, &spinning), "master port");
        check(riomp_mgmt_mport_create_handle(0, 0, &sleeping), "master port");
        check(riomp_mgmt_dbrange_enable(spinning, 0xFFFF, 0, 0), "doorbell");
        check(riomp_mgmt_dbrange_enable(sleeping, 0xFFFF, 1, 1), "doorbell");
        for (riomp_mport_t each : {spinning, sleeping})
            check(riomp_mgmt_set_event_mask(each, RIO_EVENT_DOORBELL), "event mask");
        std::uint64_t base = window_at;
        std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
        check(riomp_dma_ibwin_map(spinning, &base, window_bytes, &handle), "window");
    }
    void write(did_val_t to, const void* bytes, std::uint32_t size) const {
        int error = 0;
        do {
            error = riomp_dma_write(spinning, to, window_at, const_cast<void*>(bytes), size, RIO_DIRECTIO_TYPE_NWRITE_R,
                                    RIO_DIRECTIO_TRANSFER_SYNC, nullptr);
        } while (error == -ENODEV || error == -EIO);  // at the start
        check(error, "write");
    }
    void ring(did_val_t to, bool sleeps) const {
        riomp_mgmt_event event{};
        event.header = RIO_EVENT_DOORBELL;
        event.u.doorbell = {to, static_cast<std::uint16_t>(sleeps ? 1 : 0)};
        check(riomp_mgmt_send_event(sleeps ? sleeping : spinning, &event), "doorbell");
    }
    void await(bool sleeps) const {
        riomp_mgmt_event event{};
        int error = 0;
        do {
            error = riomp_mgmt_get_event(sleeps ? sleeping : spinning, &event);
        } while (error == -EAGAIN || error == -EINTR);
        check(error, "event");
    }

    riomp_mport_t spinning = nullptr;
    riomp_mport_t sleeping = nullptr;
};

void answer_doorbells(const Side& side, bool sleeps) {
    const char bytes[small_write] = {};
    for (int round = 0; round < rounds; ++round) {
        side.await(sleeps);
        side.write(client, bytes, small_write);
        side.ring(client, sleeps);
    }
}

double doorbell_round_trip(const Side& side, bool sleeps) {
    const char bytes[small_write] = {};
    const auto start = Clock::now();
    for (int round = 0; round < rounds; ++round) {
        side.write(server, bytes, small_write);
        side.ring(server, sleeps);
        side.await(sleeps);
    }
    return seconds_since(start) / rounds;
}

void answer_words(Words& words, bool sleeps) {
    const std::uint32_t first = words.down.load();
    for (std::uint32_t round = 1; round <= rounds; ++round) {
        sleeps ? await_sleeping(words.up, first + round) : await_spinning(words.up, first + round);
        say(words.down, first + round, sleeps);
    }
}

double word_round_trip(Words& words, bool sleeps) {
    const std::uint32_t first = words.up.load();
    const auto start = Clock::now();
    for (std::uint32_t round = 1; round <= rounds; ++round) {
        say(words.up, first + round, sleeps);
        sleeps ? await_sleeping(words.down, first + round) : await_spinning(words.down, first + round);
    }
    return seconds_since(start) / rounds;
}

void compare_copies(const Side& side, std::uint32_t size) {
    std::uint64_t handle = 0;
    void* window = nullptr;
    check(riomp_dma_obwin_map(side.spinning, server, window_at, window_bytes, &handle), "outbound window");
    check(riomp_dma_map_memory(side.spinning, window_bytes, static_cast<off_t>(handle), &window), "mapping");
    const std::vector<char> source(size, 1);
    const auto repeats = static_cast<int>(copied_bytes / size);
    std::vector<double> writes;
    std::vector<double> copies;
    std::vector<double> ratios;
    for (int pair = 0; pair < pairs; ++pair) {
        auto start = Clock::now();
        for (int repeat = 0; repeat < repeats; ++repeat)
            side.write(server, source.data(), size);
        writes.push_back(seconds_since(start) / repeats);
        start = Clock::now();
        for (int repeat = 0; repeat < repeats; ++repeat) {
            std::memcpy(window, source.data(), size);
            asm volatile("" ::: "memory");
        }
        copies.push_back(seconds_since(start) / repeats);
        ratios.push_back(copies.back() / writes.back());
    }
    std::printf("write of %7u B: %8.2f GB/s, memcpy %8.2f GB/s, ratio %.3f\n", size, size / median(writes) / 1e9,
                size / median(copies) / 1e9, median(ratios));
    check(riomp_dma_unmap_memory(window_bytes, window), "unmapping");
    check(riomp_dma_obwin_free(side.spinning, &handle), "outbound window");
}

}  // namespace

int main() {
    ::setenv("RIO_FABRIC", ("shm:bench-" + std::to_string(::getpid())).c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    auto* words =
        static_cast<Words*>(::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const pid_t child = ::fork();
    const Side side(child == 0 ? server : client);
    for (const bool sleeps : {false, true}) {
        std::vector<double> doorbells;
        std::vector<double> plain;
        std::vector<double> ratios;
        for (int pair = 0; pair < pairs; ++pair) {
            if (child == 0) {
                answer_doorbells(side, sleeps);
                answer_words(*words, sleeps);
                continue;
            }
            doorbells.push_back(doorbell_round_trip(side, sleeps));
            plain.push_back(word_round_trip(*words, sleeps));
            ratios.push_back(doorbells.back() / plain.back());
        }
        if (child != 0) {
            std::printf("round trip, %s: write + doorbell %7.2f us, %s %7.2f us, ratio %.2f\n",
                        sleeps ? "sleeping" : "spinning", median(doorbells) * 1e6, sleeps ? "futex" : "shared flag",
                        median(plain) * 1e6, median(ratios));
        }
    }
    if (child == 0) {
        // Its window stays until the client has done.
        await_sleeping(words->up, UINT32_MAX);
        return 0;
    }
    compare_copies(side, 64 << 10);
    compare_copies(side, 1 << 20);
    say(words->up, UINT32_MAX, true);
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0 ? 0 : 1;
}
