// What ns-3 makes of packets that meet in front of one port with a drop-tail queue: the reference of ns3_test.
// usage: ns3-reference SENDERS PACKETS ROOM IN_MBIT OUT_MBIT PAYLOAD STAGGER_PS
// Every sender sends its packets back to back; each begins STAGGER_PS after the one before. ROOM packets fit into the
// queue, beside the one that is being sent. Prints: delivered dropped first_drop_ps last_delivery_ps
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include <ns3/drop-tail-queue.h>
#include <ns3/net-device-container.h>
#include <ns3/node-container.h>
#include <ns3/packet.h>
#include <ns3/point-to-point-helper.h>
#include <ns3/point-to-point-net-device.h>
#include <ns3/simulator.h>
#include <ns3/string.h>

namespace {

ns3::Ptr<ns3::NetDevice> out;
std::uint64_t delivered = 0;
std::uint64_t dropped = 0;
std::int64_t first_drop = 0;
std::int64_t last_delivery = 0;

bool forward(ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet> packet, std::uint16_t protocol,
             const ns3::Address&) {
    out->Send(packet->Copy(), out->GetBroadcast(), protocol);
    return true;
}

bool arrive(ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet>, std::uint16_t, const ns3::Address&) {
    ++delivered;
    last_delivery = ns3::Simulator::Now().GetPicoSeconds();
    return true;
}

void drop(ns3::Ptr<const ns3::Packet>) {
    if (dropped++ == 0) first_drop = ns3::Simulator::Now().GetPicoSeconds();
}

void send(ns3::Ptr<ns3::NetDevice> device, std::uint32_t packets, std::uint32_t bytes) {
    constexpr std::uint16_t ipv4 = 0x0800;  // the only ones that a point-to-point device knows are IP's
    for (std::uint32_t packet = 0; packet < packets; ++packet)
        device->Send(ns3::Create<ns3::Packet>(bytes), device->GetBroadcast(), ipv4);
}

ns3::NetDeviceContainer join(ns3::NodeContainer ends, long mbit_per_s, std::uint32_t room) {
    ns3::PointToPointHelper helper;
    helper.SetDeviceAttribute("DataRate", ns3::StringValue(std::to_string(mbit_per_s) + "Mbps"));
    helper.SetChannelAttribute("Delay", ns3::StringValue("0ps"));
    helper.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::StringValue(std::to_string(room) + "p"));
    return helper.Install(ends);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 8) {
        std::cerr << "usage: ns3-reference SENDERS PACKETS ROOM IN_MBIT OUT_MBIT PAYLOAD STAGGER_PS\n";
        return 2;
    }
    const auto number = [argv](int index) { return std::strtol(argv[index], nullptr, 10); };
    const auto senders = static_cast<std::uint32_t>(number(1));
    const auto packets = static_cast<std::uint32_t>(number(2));
    ns3::Time::SetResolution(ns3::Time::PS);
    ns3::NodeContainer hub(1);
    ns3::NodeContainer sink(1);
    ns3::NetDeviceContainer last = join({hub, sink}, number(5), static_cast<std::uint32_t>(number(3)));
    out = last.Get(0);
    last.Get(1)->SetReceiveCallback(ns3::MakeCallback(&arrive));
    ns3::DynamicCast<ns3::PointToPointNetDevice>(out)->GetQueue()->TraceConnectWithoutContext("Drop",
                                                                                              ns3::MakeCallback(&drop));
    for (std::uint32_t sender = 0; sender < senders; ++sender) {
        ns3::NodeContainer host(1);
        ns3::NetDeviceContainer cable = join({host, hub}, number(4), packets);
        cable.Get(1)->SetReceiveCallback(ns3::MakeCallback(&forward));
        ns3::Simulator::Schedule(ns3::PicoSeconds(number(7) * sender), &send, cable.Get(0), packets,
                                 static_cast<std::uint32_t>(number(6)));
    }
    ns3::Simulator::Run();
    std::cout << delivered << ' ' << dropped << ' ' << first_drop << ' ' << last_delivery << '\n';
    ns3::Simulator::Destroy();
    return 0;
}
