// What a channel reaches beside a socket of the kernel, between two programs of ROOT, in turn.
//    root_measure serve              says its port
//    root_measure ask PORT PAIRS     opens a socket and a channel to it, and sends by one and the other, PAIRS times
//    for
//                                    each size; a line of JSON for each
// A reading ends when the other side says that it has all. INCAST_ROOT says which transport the channel has.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <TMessage.h>
#include <TMonitor.h>
#include <TROOT.h>
#include <TServerSocket.h>
#include <TSocket.h>
#include <TSystem.h>

#include "TRioSocket.h"
#include "TRioSystem.h"

namespace {

enum Kind : int { raw = 0, messages = 1 };
const char* const kNames[] = {"SendRaw", "Send(TMessage)"};

struct Order {
    int kind, bytes, count;
};

constexpr long kSizes[] = {4L << 10, 64L << 10, 1L << 20, 16L << 20, 128L << 20};
constexpr int kMost = 128 << 20;
constexpr long kBytes = 256L << 20;  // of a reading

/// False: the other side has ended.
bool take(TSocket& socket, std::vector<char>& room) {
    Order order{};
    if (socket.RecvRaw(&order, sizeof order) != sizeof order) return false;
    for (int number = 0; number < order.count; ++number) {
        if (order.kind == raw) {
            if (socket.RecvRaw(room.data(), order.bytes) != order.bytes) return false;
        } else {
            TMessage* message = nullptr;
            if (socket.Recv(message) <= 0) return false;
            delete message;
        }
    }
    return socket.SendRaw(&order, sizeof order) == sizeof order;
}

int serve() {
    TServerSocket listener(0, kFALSE, 10, -1, ESocketBindOption::kInaddrLoopback);
    if (!listener.IsValid()) return 1;
    std::printf("%d\n", listener.GetLocalPort());
    std::fflush(stdout);
    std::vector<char> room(kMost);
    std::unique_ptr<TSocket> first(listener.Accept());
    std::unique_ptr<TSocket> second(listener.Accept());
    TMonitor monitor;
    monitor.Add(first.get());
    monitor.Add(second.get());
    while (TSocket* ready = monitor.Select())
        if (!take(*ready, room)) break;
    return 0;
}

/// Seconds; negative: it failed.
double reading(TSocket& socket, Kind kind, int bytes, const std::vector<char>& contents) {
    const int count = static_cast<int>(std::clamp<long>(kBytes / bytes, 2, 20000));
    Order order{kind, bytes, count};
    TMessage message(kMESS_ANY, bytes + 64);
    message.WriteFastArray(contents.data(), bytes - static_cast<int>(sizeof(int)));
    const auto begin = std::chrono::steady_clock::now();
    socket.SendRaw(&order, sizeof order);
    for (int number = 0; number < count; ++number)
        if ((kind == raw ? socket.SendRaw(contents.data(), bytes) : socket.Send(message)) <= 0) return -1;
    if (socket.RecvRaw(&order, sizeof order) != sizeof order) return -1;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
}

int ask(int port, int pairs) {
    TSocket channel("localhost", port);
    TSocket socket(TRioSystem::Install()->TUnixSystem::OpenConnection("localhost", port));
    const std::string over = TRioSocket::GetTransport(channel);
    if (!channel.IsValid() || !socket.IsValid() || over == "tcp") {
        std::fprintf(stderr, "root_measure: no channel to port %d\n", port);
        return 1;
    }
    const std::vector<char> contents(kMost, 'x');
    for (const Kind kind : {raw, messages}) {
        for (const long bytes : kSizes) {
            std::string lines[2];
            for (int pair = -1; pair < pairs; ++pair) {  // the first one warms up
                for (int turn = 0; turn < 2; ++turn) {
                    const int way = (turn + pair + 2) % 2;
                    const double seconds =
                        reading(way == 0 ? channel : socket, kind, static_cast<int>(bytes), contents);
                    if (seconds < 0) return 1;
                    if (pair >= 0)
                        lines[way] += (lines[way].empty() ? "" : ", ") + std::to_string(bytes / seconds / 1e9);
                }
            }
            std::printf("{\"what\": \"%s\", \"bytes\": %ld, \"%s\": [%s], \"tcp\": [%s]}\n", kNames[kind], bytes,
                        over.c_str(), lines[0].c_str(), lines[1].c_str());
            std::fflush(stdout);
        }
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    TRioSystem::Install();
    if (count == 2 && std::strcmp(words[1], "serve") == 0) return serve();
    if (count == 4 && std::strcmp(words[1], "ask") == 0) return ask(std::atoi(words[2]), std::atoi(words[3]));
    std::fprintf(stderr, "usage: root_measure serve | root_measure ask PORT PAIRS\n");
    return 2;
}
