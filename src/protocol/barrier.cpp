#include "protocol/barrier.h"

namespace incast::protocol {

Barrier::State Barrier::state(Time now) const {
    if (!running_) {
        return State::idle;
    }
    if (!awaited_.any()) {
        return State::complete;
    }
    return now >= deadline_ ? State::expired : State::running;
}

}  // namespace incast::protocol
