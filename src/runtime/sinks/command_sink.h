// Pipes events to a command, as MEPs one behind the other (docs/formats.md). A MEP is committed once its last byte is
// in the pipe: what the command makes of it is the command's own.
#pragma once

#include <memory>

#include "base/fifo.h"
#include "runtime/sinks/child.h"
#include "runtime/sinks/mep_packer.h"
#include "runtime/sinks/metered_sink.h"

namespace incast::sinks {

class CommandSink final : public MeteredSink {
public:
    /// Starts the command. Errors: it cannot be started, two sources with one id, a transport that moves no payload.
    static Result<std::unique_ptr<CommandSink>> open(const SinkOptions& options, const protocol::Config& config);

    /// Busy while more than the buffer waits for the command, and for good once it is gone, unless the sink goes on
    /// without it.
    Taken take(Time now, const protocol::BuiltMep& mep) override;
    std::size_t durable(Time now, std::span<protocol::MepId> meps) override;
    [[nodiscard]] Time next_deadline() const override;
    [[nodiscard]] std::string failure() const override { return failure_; }
    void close() override;

private:
    struct Pending {
        protocol::MepId mep = 0;
        std::uint64_t bytes = 0;
        Begin begin;
    };
    CommandSink(const SinkOptions& options, MepPacker packer, std::unique_ptr<Child> child, std::size_t most_pending);
    void look();
    void lose(const std::string& how);

    CommandOptions options_;
    MepPacker packer_;
    std::unique_ptr<Child> child_;
    base::Fifo<Pending> pending_;  // not yet told to be durable
    std::uint64_t waiting_bytes_ = 0;
    std::uint64_t told_ = 0;  // of what was submitted
    Child::State state_;
    bool gone_ = false;
    Time now_ = 0;
    std::string failure_;
};

}  // namespace incast::sinks
