// How far the event manager believes what nodes say of themselves and of others (EB-T8).
//
// A claim that the EM knows to be wrong changes nothing and is a strike; who goes on making such claims is named and
// dropped. That a readout unit does not deliver is believed of two builder units that say so, and of one alone only if
// there is no other. A builder unit's word counts until it completes a MEP that was given to it later.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <incast/transport.h>

namespace incast::protocol {

class Claims {
public:
    explicit Claims(std::size_t nodes) : nodes_(nodes) {}

    /// A false claim. True: it was one too many. Counted once per `pause` at most, so that what a pause of either side
    /// makes look wrong all at once counts once; and forgotten when none follows for some time.
    [[nodiscard]] bool strike(Time now, Peer liar, Time pause) {
        Record& record = of(liar);
        if (record.strikes > 0 && now - record.struck < pause) {
            return false;
        }
        record.strikes = now - record.struck > forgotten_after * pause ? 1 : record.strikes + 1;
        record.struck = now;
        return record.strikes >= most_strikes;
    }

    /// `by`, a builder unit, says that `ru` has not delivered.
    void accuse(Time now, Peer by, Peer ru) {
        std::array<Accusation, 2>& said = of(ru).accused;
        const bool second = said[0].by != by && (said[1].by == by || said[1].at < said[0].at);
        said[second ? 1 : 0] = {by, now};
    }
    /// Two builder units say so, and neither has had a whole MEP since.
    [[nodiscard]] bool confirmed(Peer ru) const {
        const std::array<Accusation, 2>& said = nodes_[static_cast<std::size_t>(ru)].accused;
        return said[0].by != said[1].by && counts(said[0]) && counts(said[1]);
    }
    /// `by` has a whole MEP that it was given at that time.
    void vouch(Peer by, Time assigned) {
        of(by).vouched = std::max(of(by).vouched, assigned);
        of(by).failing = -1;
    }

    /// That BU did not get in time what it was given at that time. True: nor anything given to it for long, while
    /// others did, so whatever it says of readout units, it is the one to go.
    [[nodiscard]] bool fails(Time now, Peer by, Time assigned, Time pause) {
        Record& record = of(by);
        if (record.failing < 0) {
            record.failing = now;
        }
        const auto goes_on = [&](const Record& other) { return other.vouched > record.failing; };
        return assigned > record.failing && std::ranges::any_of(nodes_, goes_on) && strike(now, by, pause);
    }

    /// It left the view: what it said of others, and what was said of it, counts no more.
    void forget(Peer node) {
        of(node) = Record{};
        for (Record& each : nodes_) {
            for (Accusation& accusation : each.accused) {
                if (accusation.by == node) {
                    accusation = Accusation{};
                }
            }
        }
    }

private:
    static constexpr std::uint32_t most_strikes = 5;
    static constexpr Time forgotten_after = 20;  // pauses
    static constexpr Peer nobody{~std::uint32_t{0}};

    struct Accusation {
        Peer by = nobody;
        Time at = -1;
    };
    struct Record {
        std::uint32_t strikes = 0;
        Time struck = 0;
        Time vouched = -1;
        Time failing = -1;  // since then nothing that it was given was whole in time
        std::array<Accusation, 2> accused;
    };
    Record& of(Peer node) { return nodes_[static_cast<std::size_t>(node)]; }
    [[nodiscard]] bool counts(const Accusation& said) const {
        return said.by != nobody && said.at > nodes_[static_cast<std::size_t>(said.by)].vouched;
    }

    std::vector<Record> nodes_;
};

}  // namespace incast::protocol
