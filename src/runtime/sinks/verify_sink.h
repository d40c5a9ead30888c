// Checks that what was built is what was sent: structure and content of every MFP, and that no MEP comes twice unmarked
// (EB-F2). A missing source is counted, not an error; gaps in MEP ids are the ledger's business.
#pragma once

#include <memory>
#include <vector>

#include "runtime/sinks/metered_sink.h"

namespace incast::sinks {

/// What a run's sources must have sent.
class Expectation {
public:
    Expectation() = default;
    Expectation(const Expectation&) = delete;
    Expectation& operator=(const Expectation&) = delete;
    virtual ~Expectation() = default;
    /// What is wrong with this MFP, in one line; empty if nothing. `source` indexes Config::sources; it has a head, and
    /// its body is empty where bodies are phantom. `lines`: compare every byte, not only the structure.
    virtual std::string check(protocol::MepId mep, std::uint32_t source, const protocol::BuiltSource& built,
                              bool lines) = 0;
};

/// Remembers which MEPs of the last `window` were seen.
class SeenMeps {
public:
    explicit SeenMeps(std::uint64_t window);
    /// False if it was seen before, or is so old that it must have been.
    bool insert(protocol::MepId mep);

private:
    std::vector<bool> seen_;  // of [end_ - window, end_), by id modulo window
    protocol::MepId end_ = 0;
};

class VerifySink final : public MeteredSink {
public:
    VerifySink(const SinkOptions& options, const protocol::Config& config, std::unique_ptr<Expectation> expectation);
    Taken take(Time now, const protocol::BuiltMep& mep) override;

private:
    void check(const protocol::BuiltMep& mep);
    void check_source(const protocol::BuiltMep& mep, std::uint32_t source, bool lines);
    [[nodiscard]] std::string check_dropped(const protocol::BuiltSource& built, std::uint16_t id) const;
    void report(std::string line);

    Verify verify_;
    std::uint32_t sample_every_;
    bool phantom_bodies_;
    bool drops_allowed_;
    std::vector<protocol::SourceSpec> sources_;
    std::unique_ptr<Expectation> expectation_;
    SeenMeps seen_;
};

Result<std::unique_ptr<Expectation>> expect_generated(const sources::GeneratorOptions& options,
                                                      const protocol::Config& config);
Result<std::unique_ptr<Expectation>> expect_replayed(const sources::ReplayOptions& options,
                                                     const protocol::Config& config);

}  // namespace incast::sinks
