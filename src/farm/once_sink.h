// Writes each MEP to a file of its own, exactly once, in a folder that all farm nodes share (docs/farm.md).
//
// Repeats are what makes delivery to a farm "at least once": a MEP may come to two farm nodes. Both write it, under
// hidden names; whoever gives its file the MEP's name first has committed it, and the other one's is removed. A name
// is given by link(2), which one caller wins, over NFS as well.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <incast/result.h>

#include "runtime/sinks/flusher.h"
#include "runtime/sinks/mep_packer.h"
#include "runtime/sinks/metered_sink.h"

namespace incast::farm {

class OnceSink final : public sinks::MeteredSink {
public:
    /// `options.files.path` is the folder, made if it is missing. Errors: it cannot be made or written, two sources
    /// with one id.
    static Result<std::unique_ptr<OnceSink>> open(const sinks::SinkOptions& options, const protocol::Config& config);

    /// Returns once the MEP is durable, here or from another farm node. Busy for good once it failed.
    Taken take(Time now, const protocol::BuiltMep& mep) override;
    [[nodiscard]] std::string failure() const override { return failure_; }
    void close() override {}

    /// MEPs that were there already.
    [[nodiscard]] std::uint64_t already_meps() const { return already_meps_; }

private:
    OnceSink(const sinks::SinkOptions& options, const protocol::Config& config, sinks::MepPacker packer,
             sinks::OpenFile folder);
    Result<Ok> commit(const protocol::BuiltMep& mep);

    std::string path_;
    std::uint64_t run_;
    std::string own_;  // what tells its hidden names from those of others
    sinks::MepPacker packer_;
    sinks::OpenFile folder_;
    std::uint64_t already_meps_ = 0;
    std::string failure_;
};

}  // namespace incast::farm
