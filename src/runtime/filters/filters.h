// What decides between the two stages of push-pull and pull-pull: a share of all MEPs, or a plug-in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <incast/result.h>

#include "protocol/interfaces.h"

namespace incast::filters {

/// Accepts a share of all MEPs: which ones is a function of the seed and the MEP alone, so that every builder unit and
/// every attempt decide alike.
class ShareFilter final : public protocol::Filter {
public:
    /// `accept`: 0..1
    ShareFilter(double accept, std::uint64_t seed);
    Verdict decide(Time now, const protocol::BuiltMep& first) override;
    [[nodiscard]] Time next_deadline() const override { return time_never; }

private:
    std::uint64_t accepted_below_;
    std::uint64_t seed_;
};

/// A shared object with the functions of include/incast/filter.h. Error: what of it could not be loaded, and why.
/// `config` is borrowed.
Result<std::unique_ptr<protocol::Filter>> open_plugin(const std::string& path, const std::string& argument,
                                                      const protocol::Config& config);

/// A command, started by /bin/sh, that decides: it reads MEPs from its standard input and writes verdicts to its
/// standard output (docs/formats.md, "What a filter command reads"). Nobody waits for it: a MEP that it has not decided
/// about is asked for again. When it ends, what it left undecided, and everything after, is accepted, with one line on
/// standard error.
Result<std::unique_ptr<protocol::Filter>> start_command(const std::string& command, std::uint32_t node,
                                                        const protocol::Config& config);

}  // namespace incast::filters
