// A plain loop of MPI from one process to another, and nothing else: what the library does by itself with the same
// calls as the transport mpi (non-blocking sends, received in their place), or with one-sided ones (puts, a flush, and
// a message for each that says so). Prints "ready" when both have met, and bytes per second, as seen by who receives.
//
//     mpirun.openmpi -n 2 mpi_loop_openmpi send 65536       send|put BYTES [--depth N] [--warm-up S] [--seconds S]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <mpi.h>
#include <sched.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t places_bytes = std::size_t{64} << 20;
constexpr int reader = 0;
constexpr int writer = 1;
constexpr int body_tag = 1;
constexpr int word_tag = 2;
constexpr int last_tag = 3;

struct Load {
    std::string way = "send";
    std::size_t bytes = 65536;
    std::size_t depth = 32;
    double warm_up_s = 0.5;
    double seconds = 2;
    [[nodiscard]] bool puts() const { return way == "put"; }
    [[nodiscard]] int count() const { return static_cast<int>(bytes); }
    [[nodiscard]] Clock::duration time(double seconds_of_it) const {
        return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_of_it));
    }
};

std::byte* memory_of(std::size_t bytes) {
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    std::memset(memory, 1, bytes);
    return memory;
}

/// Calls each(place) for what has ended.
template <class Each>
void test(std::vector<MPI_Request>& requests, std::vector<int>& ended, Each each) {
    int count = 0;
    MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, ended.data(), MPI_STATUSES_IGNORE);
    if (count == MPI_UNDEFINED || count == 0) {
        ::sched_yield();  // as Incast's nodes do where they share a core
        return;
    }
    for (int at = 0; at < count; ++at)
        each(static_cast<std::size_t>(ended[static_cast<std::size_t>(at)]));
}

/// Until the writer says that it has ended; counts what arrives in the time that is measured.
std::uint64_t receive(const Load& load, std::byte* memory) {
    std::vector<MPI_Request> requests(load.depth);
    std::vector<int> ended(load.depth);
    std::vector<int> words(load.depth);
    const auto post = [&](std::size_t place) {
        if (load.puts()) {
            MPI_Irecv(&words[place], 1, MPI_INT, writer, word_tag, MPI_COMM_WORLD, &requests[place]);
        } else {
            MPI_Irecv(memory + place * load.bytes, load.count(), MPI_BYTE, writer, body_tag, MPI_COMM_WORLD,
                      &requests[place]);
        }
    };
    for (std::size_t place = 0; place < load.depth; ++place)
        post(place);
    int last = 0;
    MPI_Request end = MPI_REQUEST_NULL;
    MPI_Irecv(&last, 1, MPI_INT, writer, last_tag, MPI_COMM_WORLD, &end);
    const Clock::time_point from = Clock::now() + load.time(load.warm_up_s);
    const Clock::time_point until = from + load.time(load.seconds);
    std::uint64_t writes = 0;
    for (int is_over = 0; is_over == 0;) {
        const Clock::time_point now = Clock::now();
        const bool counts = now >= from && now < until;
        test(requests, ended, [&](std::size_t place) {
            writes += counts ? 1 : 0;
            post(place);
        });
        if (now >= until) MPI_Test(&end, &is_over, MPI_STATUS_IGNORE);
    }
    for (MPI_Request& each : requests)
        MPI_Cancel(&each);
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    return writes;
}

void put(const Load& load, const std::byte* memory, MPI_Win window, Clock::time_point until) {
    std::vector<int> places(load.depth);
    std::vector<MPI_Request> words(load.depth, MPI_REQUEST_NULL);
    MPI_Win_lock(MPI_LOCK_SHARED, reader, 0, window);
    while (Clock::now() < until) {
        // One flush for as many puts as are under way: each of their words leaves behind it.
        for (std::size_t place = 0; place < load.depth; ++place)
            MPI_Put(memory + place * load.bytes, load.count(), MPI_BYTE, reader,
                    static_cast<MPI_Aint>(place * load.bytes), load.count(), MPI_BYTE, window);
        MPI_Win_flush(reader, window);
        MPI_Waitall(static_cast<int>(words.size()), words.data(), MPI_STATUSES_IGNORE);
        for (std::size_t place = 0; place < load.depth; ++place) {
            places[place] = static_cast<int>(place);
            MPI_Isend(&places[place], 1, MPI_INT, reader, word_tag, MPI_COMM_WORLD, &words[place]);
        }
    }
    MPI_Waitall(static_cast<int>(words.size()), words.data(), MPI_STATUSES_IGNORE);
    MPI_Win_unlock(reader, window);
}

void send(const Load& load, const std::byte* memory, Clock::time_point until) {
    std::vector<MPI_Request> requests(load.depth);
    std::vector<int> ended(load.depth);
    const auto post = [&](std::size_t place) {
        MPI_Isend(memory + place * load.bytes, load.count(), MPI_BYTE, reader, body_tag, MPI_COMM_WORLD,
                  &requests[place]);
    };
    for (std::size_t place = 0; place < load.depth; ++place)
        post(place);
    while (Clock::now() < until)
        test(requests, ended, post);
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("A plain loop of MPI messages or puts");
    Load load;
    app.add_option("way", load.way, "send or put")->required()->check(CLI::IsMember({"send", "put"}));
    app.add_option("bytes", load.bytes, "of a message or put")->required()->check(CLI::Range(1UL, places_bytes));
    app.add_option("--depth", load.depth, "of them, under way")->check(CLI::Range(1, 4096));
    app.add_option("--warm-up", load.warm_up_s, "seconds before it is measured");
    app.add_option("--seconds", load.seconds, "that are measured");
    CLI11_PARSE(app, argc, argv);
    load.depth = std::min(load.depth, places_bytes / load.bytes);
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::byte* memory = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    if (load.puts()) {
        // Memory that MPI makes: the best case for it.
        MPI_Win_allocate(static_cast<MPI_Aint>(places_bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                         static_cast<void*>(&memory), &window);
        std::memset(memory, 1, places_bytes);
    } else {
        memory = memory_of(places_bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == reader) {
        std::puts("ready");
        std::fflush(stdout);
        const std::uint64_t writes = receive(load, memory);
        std::printf("%.0f\n", static_cast<double>(writes * load.bytes) / load.seconds);
    } else {
        // A little longer than it is measured.
        const Clock::time_point until = Clock::now() + load.time(load.warm_up_s + load.seconds + 0.1);
        load.puts() ? put(load, memory, window, until) : send(load, memory, until);
        const int last = 1;
        MPI_Send(&last, 1, MPI_INT, reader, last_tag, MPI_COMM_WORLD);
    }
    if (load.puts()) {
        MPI_Win_free(&window);
    } else {
        std::free(memory);
    }
    MPI_Finalize();
}
