// The EM's side of a schedule with barriers: which phase it is, and which RUs are not done with it (EB-C6).
//
// A phase ends when all RUs of the view that were in it are done, or at its deadline: liveness first. Another one
// begins only if some RU has something left to send, so an idle run does not spin. Nor does one whose RUs all wait for
// room: after a whole period of phases in which nothing was sent, the next ones come a pause apart.
#pragma once

#include <cstdint>

#include "base/bitmap.h"
#include "protocol/config.h"

namespace incast::protocol {

class Barrier {
public:
    /// `period`: phases in which every RU has served every BU.
    Barrier(std::size_t rus, std::size_t period) : period_(period), awaited_(rus) {}

    /// RUs are in it once they are told; `log`: assignments made so far, all of which they know by then.
    void begin(Time deadline, std::uint64_t log) {
        ++phase_;
        idle_phases_ = sent_ || log != log_ ? 0 : idle_phases_ + 1;
        expired_before_ = expired_;
        running_ = true;
        more_ = false;
        sent_ = false;
        deadline_ = deadline;
        log_ = log;
        awaited_.clear();
    }
    void await(std::uint32_t ru) { awaited_.set(ru); }
    /// False: that phase is not the one that runs, or it said so before. `queued`: it has work for later phases;
    /// `sent`: it began to send something.
    bool done(std::uint32_t ru, std::uint64_t phase, bool queued, bool sent) {
        if (!running_ || phase != phase_ || !awaited_.take(ru)) {
            return false;
        }
        more_ = more_ || queued;
        sent_ = sent_ || sent;
        return true;
    }
    /// It left the view.
    void lose(std::uint32_t ru) { awaited_.reset(ru); }

    enum class State : std::uint8_t { idle, running, complete, expired };
    [[nodiscard]] State state(Time now) const;
    /// The next one may begin `pause` later if nothing gets sent any more.
    void end(Time now, bool expired, Time pause) {
        running_ = false;
        more_ = more_ || expired;
        expired_ += expired ? 1 : 0;
        not_before_ = !sent_ && idle_phases_ >= period_ ? now + pause : 0;
    }
    /// There is something to send: of an RU that said so, or assigned since the last phase began.
    [[nodiscard]] bool wanted(Time now, std::uint64_t log) const {
        return log != log_ || (more_ && now >= not_before_);
    }
    void shift(Time gap) { deadline_ += gap; }

    [[nodiscard]] std::uint64_t phase() const { return phase_; }
    [[nodiscard]] std::uint64_t log() const { return log_; }
    /// Of the phases before this one, those that ended at their deadline.
    [[nodiscard]] std::uint64_t expired_before() const { return expired_before_; }
    [[nodiscard]] Time next_deadline() const {
        return running_ ? deadline_ : more_ && not_before_ > 0 ? not_before_ : time_never;
    }

private:
    std::uint64_t phase_ = 0;
    std::uint64_t log_ = 0;
    std::uint64_t expired_ = 0;
    std::uint64_t expired_before_ = 0;
    Time deadline_ = 0;
    bool running_ = false;
    bool more_ = false;
    bool sent_ = true;
    std::size_t period_;
    std::size_t idle_phases_ = 0;  // one after the other, in which nothing was sent
    Time not_before_ = 0;
    base::Bitmap awaited_;
};

}  // namespace incast::protocol
