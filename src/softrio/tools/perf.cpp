// What a fabric does between two endpoints: goodput against size of rDMA and of messages, round trips, and the papers'
// comparison: writes that the receiver acknowledges by CM, by a word in memory that is polled for, or by a doorbell.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>

#include "softrio/tools/tool.h"

namespace incast::softrio::tools {

namespace {

constexpr double give_up_s = 5;  // an answer that takes longer does not come
constexpr std::uint16_t bell = 1;
constexpr std::uint64_t own_address = 0x2'0000'0000;

/// Ends the measurement; main prints it.
struct Failed {
    std::string line;
};

void check(const std::error_code& error, const char* what) {
    if (error) throw Failed{std::string(what) + ": " + error.message()};
}

template <class T>
T taken(Result<T> made) {
    if (!made) throw Failed{made.error().message};
    return std::move(*made);
}

class Client {
public:
    explicit Client(const PerfOptions& options)
        : options_(options),
          port_(taken(api::MasterPort::open(0, O_NONBLOCK))),
          mailbox_(taken(api::Mailbox::open(port_))),
          socket_(mailbox_.socket()),
          memory_(taken(api::Memory::allocate(port_, api::page_bytes))),
          mapping_(taken(api::Mapping::of(port_, memory_, 0, api::page_bytes))),
          window_(taken(api::Window::open(port_, memory_, 0, api::page_bytes, own_address))) {
        check(port_.listen(bell, bell), "doorbells");
        check(socket_.connect(options.target, service_channel), "connecting by CM to `incast rio serve`");
        write_note({Note::Kind::info});
        check(socket_.send(letter_, sizeof(Note)), "CM");
        check(socket_.receive(letter_, 1000), "CM");
        std::memcpy(&info_, letter_.payload().data() + sizeof(Note), sizeof info_);
        if (info_.bytes < 2 * ping_bytes) throw Failed{"the window there is too small"};
        bytes_.resize(std::min(options.up_to_bytes, info_.bytes - ping_bytes), std::byte{1});
        check(port_.write(options.target, info_.address + info_.bytes - ping_bytes,
                          as_bytes(Ping{0, port_.destid(), own_address}), api::Completion::placed),
              "writing");
    }

    void run() {
        for (std::size_t size = 64; size <= bytes_.size(); size *= 4) {
            goodput("write", size, [&] { write(size); });
            goodput("read", size, [&] {
                check(port_.read(options_.target, info_.address, std::span(bytes_).first(size)), "reading");
            });
        }
        constexpr std::size_t letters = 64;
        goodput("messages by CM", letters * api::max_payload_bytes, [&] { send(letters * api::max_payload_bytes); });
        const std::pair<const char*, std::function<void()>> ways[] = {
            {"CM", [&] { by_cm(); }}, {"memory", [&] { by_memory(); }}, {"doorbell", [&] { by_doorbell(); }}};
        for (const auto& [name, acknowledge] : ways)
            round_trips(name, acknowledge);
        for (std::size_t size = 4096; size <= bytes_.size(); size *= 4) {
            goodput("messages, acknowledged by CM", size, [&] { send(size); });
            for (const auto& [name, acknowledge] : ways) {
                goodput(fmt::format("write, acknowledged by {}", name), size, [&] {
                    write(size);
                    acknowledge();
                });
            }
        }
    }

private:
    template <class T>
    static std::span<const std::byte> as_bytes(const T& value) {
        return std::as_bytes(std::span(&value, 1));
    }

    void write_note(const Note& note) { std::memcpy(letter_.payload().data(), &note, sizeof note); }

    void write(std::size_t size) {
        check(port_.write(options_.target, info_.address, std::span(bytes_).first(size), api::Completion::placed),
              "writing");
    }

    /// So many bytes in messages of CM, of which the last is answered.
    void send(std::size_t size) {
        write_note({Note::Kind::sink});
        for (; size > api::max_payload_bytes; size -= api::max_payload_bytes)
            check(socket_.send(letter_, api::max_payload_bytes), "CM");
        write_note({Note::Kind::echo});
        check(socket_.send(letter_, std::max(size, sizeof(Note))), "CM");
        check(socket_.receive(letter_, static_cast<std::uint32_t>(give_up_s * 1000)), "the answer by CM");
    }

    [[nodiscard]] bool wanted(const std::string& test) const {
        return options_.only.empty() || test.find(options_.only) != std::string::npos;
    }

    void by_cm() {
        write_note({Note::Kind::echo});
        check(socket_.send(letter_, sizeof(Note)), "CM");
        check(socket_.receive(letter_, static_cast<std::uint32_t>(give_up_s * 1000)), "the answer by CM");
    }

    template <class Done>
    void await(const char* what, Done done) {
        const auto start = std::chrono::steady_clock::now();
        for (std::uint64_t turns = 1; !done(); ++turns) {
            std::this_thread::yield();
            if (turns % 1024 == 0 && seconds_since(start) > give_up_s)
                throw Failed{std::string("no answer by ") + what};
        }
    }

    void by_memory() {
        ++sequence_;
        check(port_.write(options_.target, info_.address + info_.bytes - ping_bytes, as_bytes(sequence_),
                          api::Completion::left),
              "writing");
        auto& word = *reinterpret_cast<std::atomic<std::uint64_t>*>(mapping_.bytes().data());
        await("memory", [&] { return word.load(std::memory_order_acquire) == sequence_; });
    }

    void by_doorbell() {
        check(port_.ring(options_.target, bell), "doorbell");
        await("doorbell", [&] { return port_.hear().has_value(); });
    }

    void goodput(const std::string& test, std::size_t bytes, const std::function<void()>& once) const {
        if (!wanted(test) || bytes < options_.from_bytes) return;
        once();
        const auto start = std::chrono::steady_clock::now();
        std::uint64_t count = 0;
        do {
            once();
            ++count;
        } while (seconds_since(start) < options_.seconds);
        const double rate = static_cast<double>(count * bytes) / seconds_since(start);
        if (options_.json) {
            fmt::print("{{\"test\":\"{}\",\"bytes\":{},\"count\":{},\"bytes_per_s\":{:.0f}}}\n", test, bytes, count,
                       rate);
        } else {
            fmt::print("{:32} {:>10} B {:>10.1f} MB/s\n", test, bytes, rate / 1e6);
        }
    }

    void round_trips(const char* name, const std::function<void()>& once) const {
        const std::string test = fmt::format("round trip by {}", name);
        if (!wanted(test)) return;
        std::vector<double> times;
        once();
        const auto begin = std::chrono::steady_clock::now();
        do {
            const auto start = std::chrono::steady_clock::now();
            once();
            times.push_back(seconds_since(start) * 1e6);
        } while (seconds_since(begin) < options_.seconds);
        std::ranges::sort(times);
        const double p50 = times[times.size() / 2];
        const double p99 = times[times.size() * 99 / 100];
        if (options_.json) {
            fmt::print("{{\"test\":\"{}\",\"count\":{},\"min_us\":{:.3f},\"p50_us\":{:.3f},\"p99_us\":{:.3f}}}\n", test,
                       times.size(), times.front(), p50, p99);
        } else {
            fmt::print("{:32} {:>10.1f} us, p99 {:.1f} us, min {:.1f} us\n", test, p50, p99, times.front());
        }
    }

    PerfOptions options_;
    api::MasterPort port_;
    api::Mailbox mailbox_;
    api::Socket socket_;
    api::Memory memory_;
    api::Mapping mapping_;
    api::Window window_;
    api::Letter letter_;
    Info info_;
    std::vector<std::byte> bytes_;
    std::uint64_t sequence_ = 0;
};

}  // namespace

int perf(const PerfOptions& options) {
    try {
        Client(options).run();
        return 0;
    } catch (const Failed& failed) {
        fmt::print(stderr, "softrio perf: {}\n", failed.line);
        return 1;
    }
}

}  // namespace incast::softrio::tools
