// What happens to cables.
#include "sim/packet/core.h"

namespace incast::sim::packet {
namespace {

void set(Port& port, Port::Condition bit, bool on) {
    port.condition = static_cast<std::uint8_t>(on ? port.condition | bit : port.condition & ~bit);
}

}  // namespace

void Core::apply_faults() {
    while (next_fault_ < settings_.faults.size() && settings_.faults[next_fault_].at <= now_) {
        const Fault& fault = settings_.faults[next_fault_++];
        for (const PortIndex index : {port_from_one(fault.cable), port_from_two(fault.cable)}) {
            Port& port = ports_[index];
            switch (fault.what) {
                case Fault::What::corrupt:
                    details_[index].corrupt_per_million = fault.per_million;
                    set(port, Port::corrupts, fault.per_million != 0);
                    break;
                case Fault::What::down:
                    set(port, Port::is_down, true);
                    // A pause does not outlive the link that carried it.
                    if (port.paused != 0) details_[index].counters.paused_time += now_ - details_[index].paused_since;
                    port.paused = 0;
                    port.pause_told = 0;
                    // What waits in a switch goes out and is lost, so that it holds no memory and never comes late.
                    serve(index);
                    break;
                case Fault::What::up:
                    set(port, Port::is_down, false);
                    port.pause_told = 0;
                    serve(index);
                    break;
            }
        }
    }
    if (next_fault_ < settings_.faults.size()) wheel_.schedule(fault_event_, settings_.faults[next_fault_].at);
    plan_reroute();
}

/// For the oldest change of a cable that routes do not know of yet.
void Core::plan_reroute() {
    if (reroute_event_ == nil) return;
    while (next_reroute_ < next_fault_ && settings_.faults[next_reroute_].what == Fault::What::corrupt)
        ++next_reroute_;
    if (next_reroute_ == next_fault_) return;
    wheel_.schedule_by(reroute_event_, settings_.faults[next_reroute_].at + settings_.reroute_after);
}

void Core::reroute() {
    while (next_reroute_ < next_fault_ && settings_.faults[next_reroute_].at + settings_.reroute_after <= now_)
        ++next_reroute_;
    std::vector<bool> down(topology_.cables.size());
    for (std::uint32_t cable = 0; cable < down.size(); ++cable)
        down[cable] = ports_[port_from_one(cable)].down();
    Result<RouteTable> routes = make_routes(topology_, settings_.routing, down);
    if (routes) routes_ = std::move(*routes);  // make() has seen that there are some
    plan_reroute();
}

/// True, and the packet is gone, if the cable is down or corrupts it. What was on its way when the cable failed is lost
/// as it would have arrived; credit for it comes back when the link retrains, which is taken to be at once.
bool Core::lost_on_cable(PortIndex index, PacketIndex packet_index) {
    const Port& port = ports_[index];
    if ((port.condition & (Port::repeats | Port::is_down)) == Port::repeats)
        return refused_on_link(index, packet_index);
    PortDetail& detail = details_[index];
    const bool corrupted =
        (port.condition & Port::corrupts) != 0 && detail.draw() % 1'000'000 < detail.corrupt_per_million;
    if (!port.down() && !corrupted) return false;
    const Packet packet = packets_[packet_index];
    ++detail.counters.lost;
    if (packet.kind != PacketKind::pause) balance_.lost.add(packet.wire_bytes);
    packets_.give_back(packet_index);
    if (port.credited && packet.kind != PacketKind::pause)
        give_credit(index, packet.traffic_class, packet.wire_bytes, now_);
    return true;
}

}  // namespace incast::sim::packet
