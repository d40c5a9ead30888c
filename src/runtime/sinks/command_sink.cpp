#include "runtime/sinks/command_sink.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace incast::sinks {
namespace {

// How often it is looked whether the command has read on.
constexpr Time look_at_command_interval = 200 * ps_per_us;
constexpr int last_wait_ms = 2000;

}  // namespace

Result<std::unique_ptr<CommandSink>> CommandSink::open(const SinkOptions& options, const protocol::Config& config) {
    if (options.phantom_bodies) {
        return Error{
            "sink command: this transport moves no payload, so there is nothing to write; verify, touch and "
            "null work"};
    }
    Result<MepPacker> packer = MepPacker::make(config, options.missing);
    if (!packer) {
        return Error{"sink command: " + packer.error().message};
    }
    Result<std::unique_ptr<Child>> child = Child::start(options.command.command, options.node, options.incarnation);
    if (!child) {
        return Error{"sink command: " + child.error().message};
    }
    // As many as a BU can have taken without a commit.
    const std::size_t most_pending = 2 * std::size_t{config.retention_meps} + config.credits + config.quarantine_slots;
    return std::unique_ptr<CommandSink>(
        new CommandSink(options, std::move(packer).value(), std::move(child).value(), most_pending));
}

CommandSink::CommandSink(const SinkOptions& options, MepPacker packer, std::unique_ptr<Child> child,
                         std::size_t most_pending)
    : MeteredSink(options),
      options_(options.command),
      packer_(std::move(packer)),
      child_(std::move(child)),
      pending_(most_pending) {}

void CommandSink::lose(const std::string& how) {
    gone_ = true;
    const std::string line = fmt::format("sink command: '{}' {} after {} MEPs", options_.command, how, state_.written);
    if (options_.on_failure == OnFailure::stop) {
        failure_ = line;
    } else {
        stats_.first_errors.push_back(line + "; the run goes on without it");
    }
}

void CommandSink::look() {
    if (gone_) {
        return;
    }
    state_ = child_->state();
    if (state_.broken) {
        lose(child_->how_it_ended());
    }
}

protocol::Sink::Taken CommandSink::take(Time now, const protocol::BuiltMep& mep) {
    now_ = now;
    look();
    if (!failure_.empty()) {
        return Taken::busy;
    }
    if (gone_ || mep.n_events == 0) {  // of no events: there is nothing a MEP could express
        stats_.undelivered_meps += gone_ ? 1 : 0;
        count(mep);
        count_latency(now, begin_of(mep));
        return Taken::done;
    }
    if (pending_.full()) {
        return Taken::busy;
    }
    {
        const Work work(*this);
        const Result<MepPacker::Packed> packed = packer_.pack(mep);
        if (!packed) {
            note_wrong(packer_.wrong());
            failure_ = "sink command: " + packed.error().message;
            return Taken::busy;
        }
        if (waiting_bytes_ > 0 && waiting_bytes_ + packed->bytes > options_.buffer_bytes) {
            return Taken::busy;
        }
        note_wrong(packer_.wrong());
        // One copy, so that the slot is free at once; a lock per MEP, held for moving a pointer.
        std::vector<std::byte> buffer = child_->buffer();
        buffer.reserve(packed->bytes);
        for (const Bytes segment : packed->segments) {
            buffer.insert(buffer.end(), segment.begin(), segment.end());
        }
        child_->submit(std::move(buffer));
        waiting_bytes_ += packed->bytes;
        pending_.must_push({mep.mep, packed->bytes, begin_of(mep)});
    }
    count(mep);
    return Taken::pending;
}

std::size_t CommandSink::durable(Time now, std::span<protocol::MepId> meps) {
    now_ = now;
    look();
    std::size_t told = 0;
    while (told < meps.size() && !pending_.empty()) {
        const bool written = told_ < state_.written;
        if (!written && !(gone_ && failure_.empty())) {
            break;
        }
        const Pending& next = pending_.front();
        meps[told++] = next.mep;
        ++told_;
        stats_.undelivered_meps += written ? 0 : 1;
        waiting_bytes_ -= next.bytes;
        count_latency(now, next.begin);
        pending_.pop();
    }
    return told;
}

Time CommandSink::next_deadline() const {
    // Also without work: that the command is gone should be known soon.
    constexpr Time idle_interval = 100 * ps_per_ms;
    if (gone_) {
        return pending_.empty() || !failure_.empty() ? time_never : now_;
    }
    return now_ + (pending_.empty() ? idle_interval : look_at_command_interval);
}

void CommandSink::close() {
    look();
    if (gone_) {
        return;
    }
    if (const std::optional<std::string> how = child_->close(last_wait_ms); how && !how->empty()) {
        gone_ = true;
        const std::string line = fmt::format("sink command: '{}' {} after all {} MEPs", options_.command, *how, told_);
        if (options_.on_failure == OnFailure::stop) {
            failure_ = line;
        } else {
            stats_.first_errors.push_back(line);
        }
    }
}

}  // namespace incast::sinks
