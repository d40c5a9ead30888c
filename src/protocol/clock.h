// What the EM's clock shows, as seen from another node: the offset between the two, from questions and answers.
//
// The EM read its clock some time between question and answer. So the middle of the two is off by at most half the
// round trip, whatever the two ways took; the shortest round trip is the best one (EB-C6).
#pragma once

#include <cstdint>

#include <incast/transport.h>

namespace incast::protocol {

class EmClock {
public:
    /// `local`: this node has the EM's clock.
    explicit EmClock(bool local) : known_(local), local_(local) {}

    /// `asked` and `answered` by the clock of this node, `theirs` by the EM's. True if it is better than what was
    /// known.
    bool add(Time asked, Time theirs, Time answered);

    [[nodiscard]] bool known() const { return known_; }
    /// The EM's time; off by error(now) at most.
    [[nodiscard]] Time at(Time now) const { return now + offset_; }
    [[nodiscard]] Time from(Time theirs) const { return theirs - offset_; }
    [[nodiscard]] Time error(Time now) const;

private:
    bool known_;
    bool local_;
    Time offset_ = 0;
    Time error_ = 0;
    Time taken_ = 0;
};

}  // namespace incast::protocol
