// The adversarial network: as unkind as the transport contract allows, from one seed. For correctness, never for
// performance.
//
// Within the contract it delays (with a heavy tail), lets writes without a notice overtake each other and anything but
// a later notice, places a write in parts, reads bytes at different times and lands them at others, answers `again`,
// refuses connections, loses bodies where it is told to (`lossy_bodies`), and ends them so that both sides hear of it
// at different times and some of what was in flight still lands. Where `fences_live_peer` is false, a peer_down waits
// for the end of the peer's incarnation, and until then everything that it writes lands. Who crashes, pauses or is cut
// off when is decided by the harness, through the calls below.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "sim/model.h"

namespace incast::sim {

/// Chances are per million.
struct AdversarialSettings {
    std::uint64_t seed = 1;
    Time delay_min = 1 * ps_per_us;
    Time delay_spread = 10 * ps_per_us;  // uniform, on top
    std::uint32_t tail_chance = 0;       // of a delay of up to tail_max, log-uniform
    Time tail_max = 10 * ps_per_ms;
    std::uint32_t overtake_chance = 0;   // of a write that does not wait for earlier ones to land
    std::uint32_t scatter_chance = 0;    // of a write or read whose head and halves land one by one
    std::uint32_t done_chance = 0;       // of a write or read that is `done` at once
    std::uint32_t lost_body_chance = 0;  // of a write's body, a half or all of it
    std::uint32_t again_chance = 0;      // per post
    Time again_max = 100 * ps_per_us;
    std::uint32_t connect_again_chance = 0;
    std::uint32_t connect_refused_chance = 0;
    Time loss_noticed_max = 5 * ps_per_ms;  // after a loss each side hears of it within this
    bool fences_live_peer = true;
};

/// What happened to the run, by kind.
enum class Fault : std::uint8_t {
    heavy_delay,
    overtaking,
    scattered_write,
    done_at_once,
    again,
    connect_again,
    connect_refused,
    lost_in_flight,    // parts of a write or read that never landed because the connection ended
    landed_after_end,  // parts that landed although the sender is gone or cut off
    unfenced_landing,  // parts that landed from a live peer after disconnect()
    connection_cut,
    stall,
    scattered_read,  // its parts are read one by one, each at its own time
    lost_body,       // bytes of a write that never land, as its notice says
};
inline constexpr std::size_t fault_kinds = static_cast<std::size_t>(Fault::lost_body) + 1;

class AdversarialModel final : public Model {
public:
    explicit AdversarialModel(const AdversarialSettings& settings) : settings_(settings), prng_(settings.seed) {}

    /// The connection is lost: both sides hear of it, at different times. Only where live peers can be fenced.
    void cut(World& world, ConnectionId connection);
    /// Nothing passes from side `direction` until then; completions go on.
    void stall(World& world, ConnectionId connection, std::uint8_t direction, Time until);
    /// From now on a kind network: short delays, no new faults. What is already stalled or under way stays so.
    void calm();
    [[nodiscard]] std::uint64_t count(Fault fault) const { return counts_[static_cast<std::size_t>(fault)]; }

    [[nodiscard]] Capabilities capabilities() const override;
    void endpoint_added(World& world, EndpointId id) override;
    Post posted(World& world, TransferId transfer) override;
    void due(World& world, TransferId transfer, std::uint16_t step) override;
    void connecting(World& world, ConnectionId connection) override;
    void disconnecting(World& world, ConnectionId connection, std::uint8_t side) override;
    void ended(World& world, ConnectionId connection, std::uint8_t side) override;
    [[nodiscard]] Time give_up_after(World& world) override;
    bool refuses_connect(World& world, EndpointId from) override;
    Time room_at(World& world, ConnectionId connection, std::uint8_t direction) override;
    bool connect_again(World& world, EndpointId from) override;

private:
    /// One direction of a connection.
    struct Flow {
        Time last_ordered = 0;  // arrival of the last message or notice
        Time last_landing = 0;
        Time stalled_until = 0;
        bool cut = false;                  // nothing posted from now on gets through
        bool delivers = false;             // though cut: messages and notices in flight still arrive
        std::uint32_t landing_chance = 0;  // though cut: of each part in flight
    };
    struct Flows {
        std::array<Flow, 2> flow;
        std::array<bool, 2> waits_for_end{};  // [side]: left a live peer that cannot be fenced
        std::array<bool, 2> gone{};           // [side]: its endpoint ended
    };

    Flow& flow(ConnectionId connection, std::uint8_t direction) { return flows_[connection].flow[direction]; }
    Time delay();
    Time within(Time longest) { return 1 + static_cast<Time>(prng_.below(static_cast<std::uint64_t>(longest))); }
    void cut_direction(Flow& flow);
    /// In the direction in which its bytes move: to the owner of the memory that is written, from the one of what is
    /// read.
    Flow& data_flow(World& world, const Transfer& transfer);
    Post read_posted(World& world, TransferId id);
    void take_due(World& world, TransferId id, std::uint8_t parts);
    /// Of what is in flight where the connection has ended.
    bool survives(const Flow& way);
    /// Part bits.
    std::uint8_t draw_lost(const Transfer& write);
    void add(Fault fault) { ++counts_[static_cast<std::size_t>(fault)]; }

    AdversarialSettings settings_;
    base::Prng prng_;
    std::vector<Flows> flows_;  // by ConnectionId
    std::array<std::uint64_t, fault_kinds> counts_{};
};

}  // namespace incast::sim
