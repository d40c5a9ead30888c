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
    Taken take(Time now, const protocol::BuiltMep& mep) override { return hand_out(now, mep, false); }
    std::size_t durable(Time now, std::span<protocol::MepId> meps) override;
    std::size_t returned(Time now, std::span<std::uint16_t> slots) override;
    [[nodiscard]] Time next_deadline() const override;
    [[nodiscard]] std::string failure() const override { return failure_; }

    void tick(Time now) override;
    bool prepare_wait() override;
    [[nodiscard]] int wait_fd() const override { return door_.fd(); }

    // What a farm node needs besides, which is no builder unit: its slots are `memory`, all of that file.
    Result<Ok> attach(os::Descriptor file, Bytes memory);
    /// As take(). `repeated`: a process elsewhere had it, and did not give it back.
    Taken hand_out(Time now, const protocol::BuiltMep& mep, bool repeated);
    /// What was said of an event (layout.h), from when its slot is returned() until that one is handed out again.
    [[nodiscard]] std::uint64_t verdict_of(std::uint16_t slot) const { return verdict_of_slot_[slot]; }
    [[nodiscard]] std::size_t processes() const { return attached_.size(); }
    /// While no process is attached: slots that those who went had, and did not give back. They are the caller's again,
    /// and nothing else is said of them.
    std::size_t surrender(std::span<std::uint16_t> slots);

private:
    /// What a slot holds that was handed out.
    struct Use {
        std::uint64_t serial = 0;
        protocol::MepId mep = 0;
        std::uint32_t holders = 0;  // attached that have it
        bool done = false;          // one of them gave it back
        bool repeated = false;
        std::uint32_t n_events = 0;
        std::uint64_t verdict = 0;  // the first that was said (layout.h)
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
    bool given_back(std::uint32_t slot, std::uint64_t verdict);
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
    std::vector<std::uint64_t> verdict_of_slot_;
    std::vector<std::unique_ptr<Attached>> attached_;
    std::vector<Attached*> chosen_;
    std::vector<std::uint32_t> slots_;  // scratch, as the next one
    std::vector<std::uint64_t> verdicts_;
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
