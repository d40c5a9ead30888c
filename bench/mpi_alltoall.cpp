// MPI_Alltoall as a reference of event building: every rank sends a message to every rank, itself included. Send and
// receive buffers are cycled through sets of the size of the event builder's sources and slots, so that messages come
// from where its fragments come from; a benchmark that sends one buffer over and over sends it from the cache.
//
// Rank 0 prints "measuring" when the measured time begins, and one line of JSON at the end.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include <mpi.h>
#include <sys/resource.h>

namespace {

struct Options {
    std::size_t message = 65536;
    std::size_t send_set = std::size_t{16} << 20;    // of each rank
    std::size_t receive_set = std::size_t{4} << 20;  // of each rank
    double seconds = 5;
    double warm_up = 1;
};

double wall_seconds() {
    using Clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

[[noreturn]] void fail(int status, const char* problem) {
    std::fprintf(stderr, "mpi_alltoall: %s\n", problem);
    MPI_Abort(MPI_COMM_WORLD, status);
    std::exit(status);
}

Options read_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string_view name = argv[i];
        if (i + 1 == argc) fail(2, "an option lacks its value");
        const auto count = static_cast<std::size_t>(std::strtoull(argv[i + 1], nullptr, 10));
        if (name == "--message") {
            options.message = count;
        } else if (name == "--send-set") {
            options.send_set = count;
        } else if (name == "--receive-set") {
            options.receive_set = count;
        } else if (name == "--seconds") {
            options.seconds = std::strtod(argv[i + 1], nullptr);
        } else if (name == "--warm-up") {
            options.warm_up = std::strtod(argv[i + 1], nullptr);
        } else {
            fail(2,
                 "no such option; there are --message, --send-set and --receive-set (bytes, the sets of each rank),"
                 " --seconds, --warm-up");
        }
    }
    // MPI counts in int.
    if (options.message < 16 || options.message > (std::size_t{1} << 30)) fail(2, "--message: 16 B to 1 GiB");
    if (!(options.seconds > 0) || !(options.warm_up > 0)) fail(2, "--seconds and --warm-up: more than 0");
    return options;
}

class Exchange {
public:
    Exchange(const Options& options, int rank, int ranks)
        : options_(options),
          rank_(static_cast<std::size_t>(rank)),
          ranks_(static_cast<std::size_t>(ranks)),
          round_bytes_(options.message * ranks_),
          send_rounds_(std::max<std::size_t>(1, options.send_set / round_bytes_)),
          receive_rounds_(std::max<std::size_t>(1, options.receive_set / round_bytes_)),
          send_(new std::byte[send_rounds_ * round_bytes_]),
          receive_(new std::byte[receive_rounds_ * round_bytes_]) {
        // Every byte is touched, so that no page fault falls into the measured time; the ends of each message say what
        // it is.
        std::memset(send_.get(), 0x5A, send_rounds_ * round_bytes_);
        std::memset(receive_.get(), 0, receive_rounds_ * round_bytes_);
        for (std::size_t round = 0; round < send_rounds_; ++round) {
            for (std::size_t to = 0; to < ranks_; ++to) {
                std::byte* message = send_.get() + round * round_bytes_ + to * options_.message;
                const std::uint64_t name = name_of(round, rank_, to);
                std::memcpy(message, &name, sizeof name);
                std::memcpy(message + options_.message - sizeof name, &name, sizeof name);
            }
        }
    }

    void once() {
        const auto count = static_cast<int>(options_.message);
        MPI_Alltoall(send_.get() + sent_ % send_rounds_ * round_bytes_, count, MPI_BYTE,
                     receive_.get() + sent_ % receive_rounds_ * round_bytes_, count, MPI_BYTE, MPI_COMM_WORLD);
        ++sent_;
    }

    /// What the last round brought is what the others sent in it.
    [[nodiscard]] bool verify() const {
        const std::size_t last = sent_ - 1;
        for (std::size_t from = 0; from < ranks_; ++from) {
            const std::byte* message = receive_.get() + last % receive_rounds_ * round_bytes_ + from * options_.message;
            const std::uint64_t expected = name_of(last % send_rounds_, from, rank_);
            if (std::memcmp(message, &expected, sizeof expected) != 0 ||
                std::memcmp(message + options_.message - sizeof expected, &expected, sizeof expected) != 0) {
                return false;
            }
        }
        return true;
    }

    [[nodiscard]] std::size_t send_bytes() const { return send_rounds_ * round_bytes_; }
    [[nodiscard]] std::size_t receive_bytes() const { return receive_rounds_ * round_bytes_; }

private:
    static std::uint64_t name_of(std::size_t round, std::size_t from, std::size_t to) {
        return 0x9E3779B97F4A7C15U * (round * 1'000'003 + from * 1009 + to + 1);
    }

    Options options_;
    std::size_t rank_;
    std::size_t ranks_;
    std::size_t round_bytes_;
    std::size_t send_rounds_;
    std::size_t receive_rounds_;
    std::unique_ptr<std::byte[]> send_;
    std::unique_ptr<std::byte[]> receive_;
    std::size_t sent_ = 0;
};

/// Rounds until `seconds` have passed by rank 0's clock, which looks at it once per `batch` rounds; the others are told
/// by a broadcast. Returns the number of rounds.
std::uint64_t run_for(Exchange& exchange, int rank, double seconds, std::uint64_t batch) {
    const double start = wall_seconds();
    std::uint64_t rounds = 0;
    for (int go_on = 1; go_on != 0;) {
        for (std::uint64_t i = 0; i < batch; ++i)
            exchange.once();
        rounds += batch;
        if (rank == 0) go_on = wall_seconds() - start < seconds ? 1 : 0;
        MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    return rounds;
}

void check(const Exchange& exchange, const char* when) {
    int good = exchange.verify() ? 1 : 0;
    int all_good = 0;
    MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all_good == 0) fail(1, when);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const Options options = read_options(argc, argv);
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    Exchange exchange(options, rank, ranks);

    exchange.once();
    check(exchange, "the first round brought something else than was sent");
    // The warm-up also says how many rounds take about 20 ms: looking at the clock must cost nothing.
    std::uint64_t warm = run_for(exchange, rank, options.warm_up, 1);
    std::uint64_t batch =
        std::max<std::uint64_t>(1, static_cast<std::uint64_t>(0.02 * static_cast<double>(warm) / options.warm_up));
    MPI_Bcast(&batch, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);

    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        std::printf("measuring\n");
        std::fflush(stdout);
    }
    const double cpu = cpu_seconds();
    const double start = wall_seconds();
    const std::uint64_t rounds = run_for(exchange, rank, options.seconds, batch);
    MPI_Barrier(MPI_COMM_WORLD);
    const double seconds = wall_seconds() - start;
    double used = cpu_seconds() - cpu;
    double used_by_all = 0;
    MPI_Reduce(&used, &used_by_all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    check(exchange, "the last round brought something else than was sent");
    if (rank == 0) {
        const double n = ranks;
        const double rate = static_cast<double>(rounds) / seconds;
        const double message = static_cast<double>(options.message);
        std::printf(
            "{\"bytes_per_s\": %.0f, \"bytes_per_s_without_self\": %.0f, \"messages_per_s_without_self\": %.0f,"
            " \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"ranks\": %d, \"message_bytes\": %zu,"
            " \"send_bytes_per_rank\": %zu, \"receive_bytes_per_rank\": %zu}\n",
            rate * n * n * message, rate * n * (n - 1) * message, rate * n * (n - 1), seconds, used_by_all, ranks,
            options.message, exchange.send_bytes(), exchange.receive_bytes());
    }
    MPI_Finalize();
    return 0;
}
