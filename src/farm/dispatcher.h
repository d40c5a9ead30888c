// Hands the MEPs of this host's builder units to farm nodes over the network (docs/farm.md). Towards builder units it
// is one of their consumers: it reads events where they were built, and gives each back when the farm node that has it
// has said what became of it. So what a builder unit promises its consumers holds for the farm.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <incast/channel.h>
#include <incast/consumer.h>
#include <incast/result.h>
#include <incast/transport.h>

#include "farm/book/book.h"
#include "farm/book/frames.h"
#include "farm/book/taker.h"
#include "farm/outbox.h"
#include "farm/wires.h"

namespace incast::farm {

struct DispatcherOptions {
    std::string name;     // of the builder units' consumers (sink.name)
    std::string address;  // to listen at
    WireSettings wires;
    Time timeout = 60 * ps_per_s;  // for the first builder unit
    Limits limits;                 // of farm nodes
};

class Dispatcher {
public:
    explicit Dispatcher(DispatcherOptions options, Wires wires)
        : options_(std::move(options)), wires_(std::move(wires)) {}
    Dispatcher(const Dispatcher&) = delete;
    Dispatcher& operator=(const Dispatcher&) = delete;
    ~Dispatcher();

    /// Until all builder units have ended and everything was given back, or an interrupt came. Errors: no builder unit
    /// came in time, or one of them threw this consumer out.
    Result<Ok> run();
    /// A JSON object, in one line.
    [[nodiscard]] std::string summary() const;

private:
    struct Builder {
        std::uint32_t node = 0;
        incast_consumer* handle = nullptr;
        std::uint64_t held = 0;  // taken, and not given back
        bool has_ended = false;  // there will be no more
    };
    struct Node : Taker {
        incast_channel* channel = nullptr;
        std::string name;
        Outbox out;
        Hello hello;
        Reply reply;
        std::span<std::byte> rest;  // of what is being read
        bool may_read = true;
    };
    /// A MEP that was taken.
    struct Taken {
        Builder* builder = nullptr;
        incast_consumer_event event{};
    };

    Result<Ok> look_for_builders();
    [[nodiscard]] bool is_attached(std::uint32_t node) const;
    void attach(std::uint32_t node);
    void accept_all();
    void hear(Node& node);
    /// False: it broke the rules.
    bool heard(Node& node, const Reply& reply);
    void give_back(const Book<Taken>::Finished& finished);
    bool dispatch();
    int take_from(Builder& builder, std::uint64_t& ticket);
    std::uint64_t take_next();
    void send(std::uint64_t ticket, Node& node);
    void welcome(Node& node);
    void push_all();
    void keep_alive();
    void lose(Node& node, const std::string& why);
    void remove_ended();
    bool drive();
    void wait();
    [[nodiscard]] bool is_done() const;
    [[nodiscard]] Node* best_node();
    [[nodiscard]] bool has_credit() const;
    void finish();

    DispatcherOptions options_;
    Wires wires_;
    Book<Taken> book_;
    std::vector<std::unique_ptr<Builder>> builders_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<SourceFrame> table_;      // scratch
    std::vector<std::uint16_t> numbers_;  // the detector's, of all sources; as the next one
    Welcome welcome_;                     // once there was a builder unit
    std::size_t next_builder_ = 0;
    Time now_ = 0;
    Time begin_ = 0;
    Time next_look_ = 0;
    Time ended_since_ = 0;  // all builder units; 0: there is one
    bool had_builder_ = false;
    bool lost_builder_ = false;
    bool is_woken_ = true;
    std::string failure_;
};

}  // namespace incast::farm
