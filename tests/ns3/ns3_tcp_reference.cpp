// How ns-3's TCP shares one port with a drop-tail queue: the reference of ns3_tcp_test.
// usage: ns3-tcp-reference SENDERS ROOM STAGGER_PS FROM_MS UNTIL_MS
// One flow of each sender to one sink over a router, for all of the time; each begins STAGGER_PS after the one before.
// ROOM packets fit into the router's queue, beside the one that is being sent. Cables of 10 Gb/s and 25 us. Prints the
// bytes that each flow gave to its sink between the two times, a flow a line.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <ns3/bulk-send-helper.h>
#include <ns3/config.h>
#include <ns3/inet-socket-address.h>
#include <ns3/internet-stack-helper.h>
#include <ns3/ipv4-address-helper.h>
#include <ns3/ipv4-global-routing-helper.h>
#include <ns3/net-device-container.h>
#include <ns3/node-container.h>
#include <ns3/packet-sink-helper.h>
#include <ns3/packet-sink.h>
#include <ns3/point-to-point-helper.h>
#include <ns3/simulator.h>
#include <ns3/string.h>
#include <ns3/tcp-linux-reno.h>
#include <ns3/traffic-control-helper.h>
#include <ns3/uinteger.h>

namespace {

// With 12 of TCP's time stamp, 40 of its and IP's headers, and 2 of the point-to-point device: 1502 on the cable.
constexpr std::uint32_t segment = 1448;
constexpr std::uint32_t window_segments = 256;
constexpr std::uint16_t first_port = 5001;

void choose_tcp() {
    using ns3::Config::SetDefault;
    SetDefault("ns3::TcpL4Protocol::SocketType", ns3::TypeIdValue(ns3::TcpLinuxReno::GetTypeId()));
    SetDefault("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(segment));
    SetDefault("ns3::TcpSocket::DelAckCount", ns3::UintegerValue(1));
    SetDefault("ns3::TcpSocket::RcvBufSize", ns3::UintegerValue(window_segments * segment));
    SetDefault("ns3::TcpSocket::SndBufSize", ns3::UintegerValue(window_segments * segment));
    SetDefault("ns3::TcpSocketBase::MinRto", ns3::TimeValue(ns3::MilliSeconds(10)));
}

ns3::NetDeviceContainer join(const ns3::NodeContainer& ends, std::uint32_t room) {
    ns3::PointToPointHelper helper;
    helper.SetDeviceAttribute("DataRate", ns3::StringValue("10Gbps"));
    helper.SetChannelAttribute("Delay", ns3::StringValue("25us"));
    helper.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::StringValue(std::to_string(room) + "p"));
    return helper.Install(ends);
}

/// Without what an address brings to a device: a queue discipline (fq_codel) of its own in front of its queue.
ns3::Ipv4InterfaceContainer address(const ns3::NetDeviceContainer& cable, ns3::Ipv4AddressHelper& addresses) {
    const ns3::Ipv4InterfaceContainer given = addresses.Assign(cable);
    addresses.NewNetwork();
    ns3::TrafficControlHelper().Uninstall(cable);
    return given;
}

void read(const std::vector<ns3::Ptr<ns3::PacketSink>>& sinks, std::vector<std::uint64_t>& bytes) {
    bytes.clear();
    for (const auto& sink : sinks)
        bytes.push_back(sink->GetTotalRx());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::cerr << "usage: ns3-tcp-reference SENDERS ROOM STAGGER_PS FROM_MS UNTIL_MS\n";
        return 2;
    }
    const auto number = [argv](int index) { return std::strtol(argv[index], nullptr, 10); };
    const auto senders = static_cast<std::uint32_t>(number(1));
    const ns3::Time until = ns3::MilliSeconds(number(5));
    constexpr std::uint32_t never_full = 100'000;
    ns3::Time::SetResolution(ns3::Time::PS);
    choose_tcp();
    ns3::NodeContainer router(1);
    ns3::NodeContainer sink(1);
    ns3::NodeContainer hosts(senders);
    ns3::InternetStackHelper().Install(ns3::NodeContainer(router, sink, hosts));
    ns3::Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    const auto last = join({router.Get(0), sink.Get(0)}, static_cast<std::uint32_t>(number(2)));
    const ns3::Ipv4Address to = address(last, addresses).GetAddress(1);
    std::vector<ns3::Ptr<ns3::PacketSink>> sinks;
    for (std::uint32_t sender = 0; sender < senders; ++sender) {
        address(join({hosts.Get(sender), router.Get(0)}, never_full), addresses);
        const ns3::InetSocketAddress there(to, static_cast<std::uint16_t>(first_port + sender));
        sinks.push_back(
            ns3::PacketSinkHelper("ns3::TcpSocketFactory", there).Install(sink).Get(0)->GetObject<ns3::PacketSink>());
        ns3::BulkSendHelper source("ns3::TcpSocketFactory", there);
        source.SetAttribute("MaxBytes", ns3::UintegerValue(0));
        source.Install(hosts.Get(sender)).Start(ns3::PicoSeconds(number(3) * sender));
    }
    ns3::Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    std::vector<std::uint64_t> before;
    std::vector<std::uint64_t> after;
    ns3::Simulator::Schedule(ns3::MilliSeconds(number(4)), [&] { read(sinks, before); });
    ns3::Simulator::Schedule(until, [&] { read(sinks, after); });
    ns3::Simulator::Stop(until + ns3::PicoSeconds(1));
    ns3::Simulator::Run();
    for (std::size_t flow = 0; flow < after.size(); ++flow)
        std::cout << after[flow] - before[flow] << '\n';
    ns3::Simulator::Destroy();
    return 0;
}
