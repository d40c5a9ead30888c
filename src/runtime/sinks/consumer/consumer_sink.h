// Lets processes of this host read built events where they lie (docs/consumer.md, docs/decisions/0005).
//
// A MEP that somebody takes stays in its slot until everybody who got it has given it back. Policy `block`: it is
// committed then, so nothing is ever lost to a process that dies; what one had and did not give back goes to another.
// Policy `drop`: it is committed as it is handed out, and what nobody has room for, or had when it died, is counted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fifo.h"
#include "runtime/sinks/consumer/consumer_door.h"
#include "runtime/sinks/metered_sink.h"

namespace incast::sinks {

class ConsumerSink final : public MeteredSink {
public:
    /// Errors: bodies are phantom or not in slots, the name is taken on this host.
    static Result<std::unique_ptr<ConsumerSink>> open(const SinkOptions& options, const protocol::Config& config);
    /// Everybody who is attached sees the end, once they took what they were handed.
    ~ConsumerSink() override;

    Result<Ok> attach(Transport& transport, Local slots) override;
    Taken take(Time now, const protocol::BuiltMep& mep) override;
    std::size_t durable(Time now, std::span<protocol::MepId> meps) override;
    std::size_t returned(Time now, std::span<std::uint16_t> slots) override;
    [[nodiscard]] Time next_deadline() const override;
    [[nodiscard]] std::string failure() const override { return failure_; }

    void tick(Time now) override;
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return door_.fd(); }

private:
    /// What a slot holds that was handed out.
    struct Use {
        std::uint64_t serial = 0;
        protocol::MepId mep = 0;
        std::uint32_t holders = 0;  // attached that have it
        bool done = false;          // one of them gave it back
        bool repeated = false;
        Begin begin;
    };

    ConsumerSink(const SinkOptions& options, const protocol::Config& config, ConsumerDoor door);

    [[nodiscard]] consumer::Record& record(std::uint32_t slot) const;
    [[nodiscard]] consumer::DirectoryHeader& directory_header() const;
    [[nodiscard]] bool is_dropping() const { return options_.policy == ConsumerOptions::Policy::drop; }
    /// False: a body lies elsewhere.
    bool describe(const protocol::BuiltMep& mep);
    Attached* least_busy();
    void choose();
    void hand_over(Attached& process, std::uint32_t slot);
    bool collect_from(Attached& process);
    void given_back(std::uint32_t slot);
    void finish(std::uint32_t slot);
    void offer_orphans();
    void look_around();
    void remove(std::size_t index, bool ejected);

    ConsumerOptions options_;
    std::vector<std::uint16_t> ids_;  // by source of the config
    std::uint64_t run_;
    std::uint32_t node_;
    std::uint32_t incarnation_;
    std::uint32_t window_;
    ConsumerDoor door_;
    SharedPages directory_;  // nothing before attach()
    Bytes payload_;
    std::vector<Use> uses_;  // by slot
    std::vector<std::unique_ptr<Attached>> attached_;
    std::vector<Attached*> chosen_;
    std::vector<std::uint32_t> slots_;   // scratch
    base::Fifo<std::uint32_t> orphans_;  // slots whose only holders died
    base::Fifo<std::uint16_t> returned_;
    base::Fifo<protocol::MepId> durable_;
    ConsumerDoor::News news_;
    std::uint64_t serials_ = 0;
    std::uint64_t sleeps_ = 0;
    std::size_t turn_ = 0;
    std::uint32_t held_ = 0;
    bool asleep_ = false;
    bool refused_ = false;  // the last take() was answered busy
    Time now_ = 0;
    Time next_look_ = 0;
    std::string failure_;
};

}  // namespace incast::sinks
