// A node that lies: a real one whose endpoint adds false messages to what it says, or withholds true ones (
// EB-T8). In such a run nothing else goes wrong, so whoever is dropped besides the liar was dropped on its word.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "checker.h"
#include "plan.h"
#include "transport/decorator/forward.h"
#include "wire/control.h"

namespace incast::adversary {

class LyingEndpoint final : public transport::decorator::Forward {
public:
    LyingEndpoint(std::unique_ptr<Transport> inner, const Plan& plan, Checker& checker, std::uint32_t incarnation);

    Post send(Peer peer, Bytes message) override;
    std::size_t poll(Time now, std::span<Event> events) override;
    [[nodiscard]] Time next_deadline() const override;

private:
    struct Withheld {
        wire::AttemptEntry attempt;
        Time until = 0;
    };
    void hear(Time now, Bytes message);
    void lie(Time now);
    bool say_late(const wire::AttemptEntry& attempt);
    template <wire::ControlKind kind>
    bool say(Peer to, wire::ControlMessage<kind>& message) {
        checker_.lies(true);
        const bool said = inner().send(to, message.bytes()) == Post::done;
        checker_.lies(false);
        return said;
    }
    template <wire::ControlKind kind>
    [[nodiscard]] wire::ControlMessage<kind> message() const {
        return wire::ControlMessage<kind>(plan_.config.run, 0, incarnation_);
    }

    const Plan& plan_;
    Checker& checker_;
    std::uint32_t incarnation_;
    Time next_ = 0;
    std::uint32_t newest_credit_ = 0;
    std::vector<Withheld> withheld_;
    std::vector<std::uint32_t> incarnations_;  // of peers, as far as they are up
};

}  // namespace incast::adversary
