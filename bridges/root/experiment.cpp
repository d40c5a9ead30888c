// One end of the experiments of `incast bridge root` (docs/root.md): told what to do by lines of its standard input, it
// answers each with a line of JSON. Channels or sockets are opened anew for each reading.
//    listen ADDRESS               {"address": WHERE}; ADDRESS as TRioServerSocket takes it, or tcp://*
//    take FIRST CLIENTS WARM_UP         of CLIENTS that arrive, buffers until all have sent their last one
//    send FIRST ADDRESS BYTES SECONDS   buffers of so many bytes for so long, and at least FIRST of them twice and one
//    exchange FIRST BYTES SECONDS WARM_UP                both at once, with the one that arrives
//    exchange-with FIRST ADDRESS BYTES SECONDS WARM_UP   both at once, with the one that listens there
// The FIRST buffers of a client are not measured: in them, the memory of a ring is touched for the first time.
// A rate is of buffers that a program had whole between two of its own moments: from the first one that came after the
// warm-up, and after each client's first ones, to the first client's last one. All clients send within that time.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <TMonitor.h>
#include <TROOT.h>
#include <TServerSocket.h>
#include <TSocket.h>
#include <sys/resource.h>

#include "TRioSocket.h"
#include "TRioSystem.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastBytes = 64;

/// What a buffer begins with.
struct Head {
    std::int64_t number;
    std::int64_t bytes;  // of each buffer
    std::int64_t is_last;
};

struct Failure {
    std::string why;
};

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

double processor_seconds() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

void say_to(TSocket& socket, char word) {
    if (socket.SendRaw(&word, 1) != 1) throw Failure{"the other side is gone"};
}

void hear_from(TSocket& socket, char word) {
    char said = 0;
    if (socket.RecvRaw(&said, 1) != 1 || said != word) throw Failure{"the other side is gone"};
}

/// Its moments: when each buffer of one client was there.
struct Arrivals {
    std::int64_t bytes = 0;
    std::vector<double> at;  // s
};

/// The next buffer. False: it was the last one.
bool take_one(TSocket& socket, std::vector<char>& room, Arrivals& arrivals, Clock::time_point begin) {
    Head head{};
    std::size_t got = 0;
    if (arrivals.bytes == 0) {
        if (socket.RecvRaw(&head, sizeof head) != sizeof head || head.bytes < kLeastBytes)
            throw Failure{"a client ended before its first buffer"};
        arrivals.bytes = head.bytes;
        room.resize(std::max(room.size(), static_cast<std::size_t>(head.bytes)));
        std::memcpy(room.data(), &head, sizeof head);
        got = sizeof head;
    }
    const int rest = static_cast<int>(arrivals.bytes - static_cast<std::int64_t>(got));
    if (socket.RecvRaw(room.data() + got, rest) != rest) throw Failure{"a client ended within a buffer"};
    std::memcpy(&head, room.data(), sizeof head);
    if (head.number != static_cast<std::int64_t>(arrivals.at.size()) || head.bytes != arrivals.bytes)
        throw Failure{"a buffer is not the one that was sent"};
    arrivals.at.push_back(seconds_since(begin));
    return head.is_last == 0;
}

int send_all(TSocket& socket, int first, std::int64_t bytes, double seconds) {
    std::vector<char> contents(static_cast<std::size_t>(bytes), 'x');
    const auto begin = Clock::now();
    for (Head head{0, bytes, 0};; ++head.number) {
        head.is_last = head.number >= 2 * first && seconds_since(begin) >= seconds ? 1 : 0;
        std::memcpy(contents.data(), &head, sizeof head);
        if (socket.SendRaw(contents.data(), static_cast<int>(bytes)) != bytes) throw Failure{"the receiver is gone"};
        if (head.is_last != 0) return static_cast<int>(head.number + 1);
    }
}

/// Bytes per second of each client, within the time that all of them share.
std::string rates_of(const std::vector<Arrivals>& all, int unmeasured, double warm_up) {
    double all_began = 0, end = 1e18;
    for (const Arrivals& one : all) {
        all_began = std::max(all_began, one.at[static_cast<std::size_t>(unmeasured - 1)]);
        end = std::min(end, one.at.back());
    }
    // It begins with a buffer of somebody, as it ends with one. Where few and huge ones come, the first are the
    // warm-up.
    double first = 1e18;
    for (const double least : {std::max(all_began, warm_up), all_began}) {
        for (const Arrivals& one : all)
            for (const double at : one.at)
                if (at >= least && at < end) first = std::min(first, at);
        if (first < end) break;
    }
    if (first >= end) throw Failure{"too short: clients did not send at the same time"};
    std::string said;
    for (const Arrivals& one : all) {
        const auto within =
            std::count_if(one.at.begin(), one.at.end(), [&](double at) { return at > first && at <= end; });
        said += (said.empty() ? "" : ", ") +
                std::to_string(static_cast<double>(within) * static_cast<double>(one.bytes) / (end - first));
    }
    return "[" + said + "]";
}

double total_of(const std::vector<Arrivals>& all) {
    double bytes = 0;
    for (const Arrivals& one : all)
        bytes += static_cast<double>(one.bytes) * static_cast<double>(one.at.size());
    return bytes;
}

class End {
public:
    void listen(const std::string& address) {
        if (address.rfind("tcp://", 0) == 0)
            listener_ = std::make_unique<TServerSocket>(0, kFALSE, 64);
        else
            listener_ = std::make_unique<TRioServerSocket>(address.c_str());
        if (!listener_->IsValid()) throw Failure{"nothing can listen at " + address};
        const std::string where = address.rfind("tcp://", 0) == 0
                                      ? "tcp://HOST:" + std::to_string(listener_->GetLocalPort())
                                      : static_cast<TRioServerSocket&>(*listener_).GetAddress();
        std::printf("{\"address\": \"%s\"}\n", where.c_str());
    }

    void take(int first, int clients, double warm_up) {
        std::vector<std::unique_ptr<TSocket>> sockets;
        std::map<TSocket*, std::size_t> numbers;
        TMonitor monitor;
        for (int client = 0; client < clients; ++client) {
            sockets.push_back(accept());
            numbers[sockets.back().get()] = sockets.size() - 1;
            monitor.Add(sockets.back().get());
        }
        for (const auto& socket : sockets)
            say_to(*socket, 'g');
        const double used = processor_seconds();
        const auto begin = Clock::now();
        std::vector<Arrivals> all(sockets.size());
        std::vector<char> room;
        for (int open = clients; open > 0;) {
            TSocket* const ready = monitor.Select();
            if (take_one(*ready, room, all[numbers[ready]], begin)) continue;
            monitor.Remove(ready);
            --open;
        }
        std::printf("{\"bytes_per_s\": %s, \"bytes\": %.0f, \"cpu_s\": %.6f}\n", rates_of(all, first, warm_up).c_str(),
                    total_of(all), processor_seconds() - used);
        for (const auto& socket : sockets)
            say_to(*socket, 'd');
    }

    static void send(int first, const std::string& address, std::int64_t bytes, double seconds) {
        const auto socket = connect(address);
        hear_from(*socket, 'g');
        const double used = processor_seconds();
        const auto begin = Clock::now();
        const int sent = send_all(*socket, first, bytes, seconds);
        const double took = seconds_since(begin);
        std::printf("{\"messages\": %d, \"seconds\": %.6f, \"cpu_s\": %.6f}\n", sent, took, processor_seconds() - used);
        hear_from(*socket, 'd');
    }

    void exchange(int first, std::int64_t bytes, double seconds, double warm_up) {
        exchange(first, *accept(), bytes, seconds, warm_up);
    }
    static void exchange_with(int first, const std::string& address, std::int64_t bytes, double seconds,
                              double warm_up) {
        exchange(first, *connect(address), bytes, seconds, warm_up);
    }

private:
    std::unique_ptr<TSocket> accept() {
        if (listener_ == nullptr) throw Failure{"nothing listens"};
        std::unique_ptr<TSocket> made(listener_->Accept());
        if (made == nullptr || made.get() == reinterpret_cast<TSocket*>(-1)) {
            (void)made.release();
            throw Failure{"nobody could be accepted"};
        }
        return made;
    }

    static std::unique_ptr<TSocket> connect(const std::string& address) {
        std::unique_ptr<TSocket> made;
        if (address.rfind("tcp://", 0) == 0) {
            const std::size_t colon = address.rfind(':');
            made =
                std::make_unique<TSocket>(address.substr(6, colon - 6).c_str(), std::atoi(address.c_str() + colon + 1));
        } else {
            made = std::make_unique<TRioSocket>(address.c_str());
        }
        if (!made->IsValid()) throw Failure{"no connection to " + address};
        return made;
    }

    /// One thread for each direction, as ROOT allows.
    static void exchange(int first, TSocket& socket, std::int64_t bytes, double seconds, double warm_up) {
        say_to(socket, 'g');
        hear_from(socket, 'g');
        const double used = processor_seconds();
        const auto begin = Clock::now();
        std::string trouble;
        std::thread sending([&] {
            try {
                send_all(socket, first, bytes, seconds);
            } catch (const Failure& failure) {
                trouble = failure.why;
            }
        });
        std::vector<Arrivals> all(1);
        std::string why;
        try {
            std::vector<char> room;
            while (take_one(socket, room, all[0], begin)) {
            }
        } catch (const Failure& failure) {
            why = failure.why;
            socket.Close("force");
        }
        sending.join();
        if (!why.empty() || !trouble.empty()) throw Failure{why.empty() ? trouble : why};
        std::printf("{\"bytes_per_s\": %s, \"bytes\": %.0f, \"cpu_s\": %.6f}\n", rates_of(all, first, warm_up).c_str(),
                    total_of(all), processor_seconds() - used);
        say_to(socket, 'd');
        hear_from(socket, 'd');
    }

    std::unique_ptr<TServerSocket> listener_;
};

void obey(End& end, const std::string& line) {
    std::istringstream words(line);
    std::string what, address;
    std::int64_t bytes = 0;
    double seconds = 0, warm_up = 0;
    int clients = 0, first = 0;
    words >> what;
    if (what == "listen" && words >> address) return end.listen(address);
    words >> first;
    if (first < 1) throw Failure{"not understood: " + line};
    if (what == "take" && words >> clients >> warm_up) return end.take(first, clients, warm_up);
    if (what == "send" && words >> address >> bytes >> seconds) return End::send(first, address, bytes, seconds);
    if (what == "exchange" && words >> bytes >> seconds >> warm_up) return end.exchange(first, bytes, seconds, warm_up);
    if (what == "exchange-with" && words >> address >> bytes >> seconds >> warm_up)
        return End::exchange_with(first, address, bytes, seconds, warm_up);
    throw Failure{"not understood: " + line};
}

}  // namespace

int main() {
    ROOT::EnableThreadSafety();
    TRioSystem::Install();
    End end;
    for (std::string line; std::getline(std::cin, line);) {
        try {
            obey(end, line);
        } catch (const Failure& failure) {
            std::fprintf(stderr, "root_experiment: %s\n", failure.why.c_str());
            return 1;
        }
        std::fflush(stdout);
    }
    return 0;
}
