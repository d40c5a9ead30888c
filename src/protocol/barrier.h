// The EM's side of a schedule with barriers: which phase it is, and which RUs are not done with it (PROTOCOL C6).
//
// A phase ends when all RUs of the view that were in it are done, or at its deadline: liveness first. Another one
// begins only if some RU has something left to send, so an idle run does not spin.
#pragma once

#include <cstdint>

#include "base/bitmap.h"
#include "protocol/config.h"

namespace incast::protocol {

class Barrier {
public:
    explicit Barrier(std::size_t rus) : awaited_(rus) {}

    /// RUs are in it once they are told; `log`: assignments made so far, all of which they know by then.
    void begin(Time deadline, std::uint64_t log) {
        ++phase_;
        running_ = true;
        more_ = false;
        deadline_ = deadline;
        log_ = log;
        awaited_.clear();
    }
    void await(std::uint32_t ru) { awaited_.set(ru); }
    /// False: that phase is not the one that runs, or it said so before. `queued`: it has work for later phases.
    bool done(std::uint32_t ru, std::uint64_t phase, bool queued) {
        if (!running_ || phase != phase_ || !awaited_.take(ru)) {
            return false;
        }
        more_ = more_ || queued;
        return true;
    }
    /// It left the view.
    void lose(std::uint32_t ru) { awaited_.reset(ru); }

    enum class State : std::uint8_t { idle, running, complete, expired };
    [[nodiscard]] State state(Time now) const;
    void end(bool expired) {
        running_ = false;
        more_ = more_ || expired;
    }
    /// There is something to send: of an RU that said so, or assigned since the last phase began.
    [[nodiscard]] bool wanted(std::uint64_t log) const { return more_ || log != log_; }
    void shift(Time gap) { deadline_ += gap; }

    [[nodiscard]] std::uint64_t phase() const { return phase_; }
    [[nodiscard]] std::uint64_t log() const { return log_; }
    [[nodiscard]] Time next_deadline() const { return running_ ? deadline_ : time_never; }

private:
    std::uint64_t phase_ = 0;
    std::uint64_t log_ = 0;
    Time deadline_ = 0;
    bool running_ = false;
    bool more_ = false;
    base::Bitmap awaited_;
};

}  // namespace incast::protocol
