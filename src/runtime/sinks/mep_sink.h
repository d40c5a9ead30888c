// Writes MEPs into files, and a manifest of what is durable (docs/formats.md, EB-F2 and EB-S3).
//
// take() copies a MEP into the page cache and answers `pending`; a commit makes many of them durable at once, on a
// thread of its own: data first, then their manifest lines (Fsync says how durable). A MEP counts as committed by its
// line alone, so what a crash leaves behind the manifest is void.
#pragma once

#include <memory>
#include <vector>

#include "runtime/sinks/flusher.h"
#include "runtime/sinks/mep_packer.h"
#include "runtime/sinks/metered_sink.h"

namespace incast::sinks {

class MepSink final : public MeteredSink {
public:
    /// Errors: the folder cannot be made or written, files of this node and incarnation are there already, two sources
    /// with one id.
    static Result<std::unique_ptr<MepSink>> open(const SinkOptions& options, const protocol::Config& config);

    /// Busy while too much is written but not durable, while it waits for room, and for good once it failed.
    Taken take(Time now, const protocol::BuiltMep& mep) override;
    std::size_t durable(Time now, std::span<protocol::MepId> meps) override;
    [[nodiscard]] Time next_deadline() const override;
    /// Once what was taken before it failed is settled, with what the files hold.
    [[nodiscard]] std::string failure() const override;
    [[nodiscard]] std::string shortage() const override;
    void close() override;

private:
    struct Pending {
        protocol::MepId mep;
        std::uint32_t n_events;
        Begin begin;
    };
    /// MEPs that become durable together.
    struct Group {
        std::vector<Pending> meps;
        std::uint64_t bytes = 0;
        Time oldest = 0;
        Commit commit;
    };

    MepSink(const SinkOptions& options, MepPacker packer, OpenFile folder, OpenFile manifest);
    bool write(Time now, const protocol::BuiltMep& mep);
    bool write_all(Time now, std::span<const Bytes> segments);
    bool begin_file(Time now);
    void commit_if_due(Time now);
    void settle_commit();
    /// With the reason in errno: waits for room, if it may; else it is the end.
    void lack(Time now, const std::string& why);
    void fail(const std::string& why);

    MepFileOptions options_;
    Missing missing_;
    std::string name_;  // "<node>-<incarnation>"
    MepPacker packer_;

    std::shared_ptr<const OpenFile> file_;
    std::string file_name_;
    std::uint64_t file_bytes_ = 0;
    Time file_begun_ = 0;
    std::uint32_t next_file_ = 0;

    Group filling_;
    Group flushing_;
    bool flush_in_progress_ = false;
    bool flush_failed_ = false;
    std::uint64_t durable_meps_ = 0;
    std::uint64_t durable_events_ = 0;
    std::string shortage_;
    Time retry_at_ = 0;
    std::size_t told_ = 0;  // of flushing_.meps, once it is durable
    Time now_ = 0;
    std::string failure_;
    Flusher flusher_;
};

}  // namespace incast::sinks
