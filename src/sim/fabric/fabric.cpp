#include "sim/fabric/fabric.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <ranges>
#include <sstream>
#include <system_error>

#include "sim/fabric/section.h"
#include "sim/fabric/topology_section.h"
#include "sim/packet/network.h"

namespace incast::sim::fabric {
namespace {

using packet::FlowSettings;
using packet::HostSettings;
using packet::NetworkSettings;
using packet::SwitchKind;
using packet::SwitchSettings;

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = kib * 1024;
constexpr std::uint64_t gib = mib * 1024;
constexpr double ps_per_m = 5000;  // light in fibre and in copper cables, about 2/3 c

packet::ClassService read_weights(Section& section) {
    packet::ClassService service;
    if (!section.has("weights")) {
        (void)section.counts("weights", 255);
        return service;
    }
    const std::vector<std::uint64_t> weights = section.counts("weights", 255);
    if (weights.size() != packet::max_classes) {
        section.fail("weights", "must be " + std::to_string(packet::max_classes) + " numbers, one for each class");
        return service;
    }
    for (std::size_t i = 0; i < weights.size(); ++i)
        service.weight[i] = static_cast<std::uint8_t>(weights[i]);
    return service;
}

HostSettings read_host(Section& section) {
    HostSettings host;
    const auto small = [&section](std::string_view key, std::uint32_t otherwise, std::uint64_t least) {
        return static_cast<std::uint32_t>(section.bytes(key, otherwise, least, 65536));
    };
    host.mtu_bytes = small("mtu", host.mtu_bytes, 64);
    host.header_bytes = small("header", host.header_bytes, 0);
    host.ack_bytes = small("ack", host.ack_bytes, 1);
    host.cnp_bytes = small("cnp", host.cnp_bytes, 1);
    host.request_bytes = small("request", host.request_bytes, 1);
    host.train_packets = static_cast<std::uint32_t>(section.count("train_packets", host.train_packets, 1, 1024));
    host.order = section.choice("order", 0, {"round-robin", "message-order"}) == 0 ? HostSettings::Order::round_robin
                                                                                   : HostSettings::Order::message_order;
    host.message_cost = section.time("message_cost", host.message_cost);
    host.dma_engines = static_cast<std::uint32_t>(section.count("dma_engines", host.dma_engines, 0, 1024));
    host.transmit_limit = section.rate("transmit_limit", host.transmit_limit, true);
    host.receive_limit = section.rate("receive_limit", host.receive_limit, true);
    host.receive_buffer_bytes = section.bytes("receive_buffer", host.receive_buffer_bytes, 64, gib);
    host.receive_xoff_bytes = section.bytes("receive_xoff", host.receive_xoff_bytes, 0, gib);
    host.outstanding_reads =
        static_cast<std::uint32_t>(section.count("outstanding_reads", host.outstanding_reads, 1, 65535));
    host.cnp_class = static_cast<std::uint8_t>(section.count("cnp_class", host.cnp_class, 0, packet::max_classes - 1));
    host.service = read_weights(section);
    section.finish();
    return host;
}

/// 0 if it is anything else than a number.
double number_in(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() ? value : 0;
}

std::uint32_t alpha_q8(Section& section, std::string_view key, std::uint32_t otherwise) {
    if (!section.has(key)) {
        (void)section.text(key, "");
        return otherwise;
    }
    const std::string text = section.text(key, "");
    // A fraction or a whole number: thresholds are set as powers of two, and 1/3 is not a number that one can write.
    const std::size_t slash = text.find('/');
    const double under = number_in(std::string_view(text).substr(0, slash));
    const double over = slash == std::string::npos ? 1 : number_in(std::string_view(text).substr(slash + 1));
    const double value = over > 0 ? under / over : 0;
    if (!(value >= 1.0 / 256) || !(value <= 256)) {
        section.fail(key, "must be in 1/256..256, such as \"1/8\" or \"2\"");
        return otherwise;
    }
    return static_cast<std::uint32_t>(std::lround(value * 256));
}

void read_ecn(Section section, packet::EcnSettings& ecn) {
    ecn.classes = section.classes("classes", ecn.classes);
    ecn.kmin_bytes = section.bytes("kmin", ecn.kmin_bytes, 0, 64 * gib);
    ecn.kmax_bytes = section.bytes("kmax", ecn.kmax_bytes, 0, 64 * gib);
    ecn.pmax_per_million = section.per_million("pmax", ecn.pmax_per_million);
    ecn.at_departure = section.choice("mark_at", 0, {"arrival", "departure"}) == 1;
    if (ecn.kmax_bytes < ecn.kmin_bytes) section.fail("kmax", "is less than kmin");
    section.finish();
}

void read_pfc(Section section, packet::PfcSettings& pfc) {
    pfc.classes = section.classes("classes", pfc.classes);
    pfc.xoff_bytes = section.bytes("xoff", pfc.xoff_bytes, 0, 64 * gib);
    pfc.xon_gap_bytes = section.bytes("xon_gap", pfc.xon_gap_bytes, 0, 64 * gib);
    pfc.headroom_bytes = section.bytes("headroom", pfc.headroom_bytes, 0, 64 * gib);
    pfc.quanta = static_cast<std::uint32_t>(section.count("quanta", pfc.quanta, 0, 65535));
    pfc.refresh = section.flag("refresh", pfc.refresh);
    section.finish();
}

SwitchSettings read_switch(Section& section) {
    SwitchSettings found;
    constexpr SwitchKind kinds[]{SwitchKind::shared_buffer, SwitchKind::credit, SwitchKind::input_fifo,
                                 SwitchKind::deep_buffer};
    found.kind = kinds[section.choice("kind", 0, {"shared-buffer", "credit", "input-fifo", "deep-buffer"})];
    found.latency = section.time("latency", found.latency);
    found.cut_through = section.flag("cut_through", found.cut_through);
    found.service = read_weights(section);
    if (found.kind == SwitchKind::shared_buffer || found.kind == SwitchKind::deep_buffer) {
        found.buffer_bytes = section.bytes("buffer", found.buffer_bytes, 1024, 1024 * gib);
        found.alpha_ingress_q8 = alpha_q8(section, "alpha_ingress", found.alpha_ingress_q8);
        found.alpha_egress_q8 = alpha_q8(section, "alpha_egress", found.alpha_egress_q8);
        found.egress_limit_bytes = section.bytes("egress_limit", found.egress_limit_bytes, 0, 1024 * gib);
        found.ingress_reserve_bytes = section.bytes("ingress_reserve", found.ingress_reserve_bytes, 0, gib);
        read_ecn(section.section("ecn"), found.ecn);
        read_pfc(section.section("pfc"), found.pfc);
    } else {
        found.input_buffer_bytes = section.bytes("input_buffer", found.input_buffer_bytes, 64, gib);
    }
    if (found.kind == SwitchKind::credit)
        found.receiver_controlled = section.flag("receiver_controlled", found.receiver_controlled);
    if (found.kind == SwitchKind::input_fifo) found.random_choice = section.flag("random_choice", found.random_choice);
    if (found.kind == SwitchKind::deep_buffer) {
        found.ports_per_asic =
            static_cast<std::uint32_t>(section.count("ports_per_asic", found.ports_per_asic, 1, 1024));
        found.on_chip_bytes = section.bytes("on_chip", found.on_chip_bytes, 1024, gib);
        found.spill_bytes = section.bytes("spill", found.spill_bytes, 0, gib);
        found.memory_bandwidth = section.rate("memory_bandwidth", found.memory_bandwidth, true);
        found.egress_credit_bytes = section.bytes("egress_credit", found.egress_credit_bytes, 64, gib);
        found.fabric_latency = section.time("fabric_latency", found.fabric_latency);
    }
    section.finish();
    return found;
}

Link read_link(Section& section) {
    Link link;
    if (!section.has("rate")) section.fail("rate", "missing; a rate with its unit, such as \"100Gb/s\"");
    link.rate = section.rate("rate", packet::gbit_per_s(1));
    // Each of these cables is one lane of a port of that rate.
    link.rate.bits_per_s /= section.count("breakout", 1, 1, 16);
    link.repeats = section.flag("repeats", false);
    if (section.has("delay") && section.has("length_m")) section.fail("length_m", "not beside delay");
    link.propagation = section.time("delay", 0);
    const std::uint64_t metres = section.count("length_m", 0, 0, 100'000);
    if (metres > 0) link.propagation = static_cast<Time>(std::llround(static_cast<double>(metres) * ps_per_m));
    section.finish();
    return link;
}

void read_dcqcn(Section section, packet::DcqcnSettings& dcqcn) {
    dcqcn.gain_shift = static_cast<std::uint32_t>(section.count("gain_shift", dcqcn.gain_shift, 1, 16));
    dcqcn.alpha_period = section.time("alpha_period", dcqcn.alpha_period);
    dcqcn.increase_period = section.time("increase_period", dcqcn.increase_period);
    dcqcn.increase_bytes = section.bytes("increase_bytes", dcqcn.increase_bytes, 1, 64 * gib);
    dcqcn.fast_recovery_steps =
        static_cast<std::uint32_t>(section.count("fast_recovery_steps", dcqcn.fast_recovery_steps, 1, 1000));
    dcqcn.additive_step = section.rate("additive_step", dcqcn.additive_step);
    dcqcn.hyper_step = section.rate("hyper_step", dcqcn.hyper_step);
    dcqcn.minimum = section.rate("minimum", dcqcn.minimum);
    dcqcn.notification_interval = section.time("notification_interval", dcqcn.notification_interval);
    dcqcn.clamp_target = section.flag("clamp_target", dcqcn.clamp_target);
    dcqcn.cut_period = section.time("cut_period", dcqcn.cut_period);
    if (dcqcn.alpha_period == 0 || dcqcn.increase_period == 0) section.fail("", "periods must be more than 0");
    section.finish();
}

FlowSettings read_flow(Section section) {
    FlowSettings flow;
    constexpr packet::Transport transports[]{packet::Transport::reliable, packet::Transport::datagram,
                                             packet::Transport::tcp};
    flow.transport = transports[section.choice("transport", 0, {"reliable", "datagram", "tcp"})];
    flow.traffic_class =
        static_cast<std::uint8_t>(section.count("class", flow.traffic_class, 0, packet::max_classes - 1));
    if (section.has("window_packets")) {
        flow.window_packets = static_cast<std::uint32_t>(section.count("window_packets", 1, 1, 1U << 20U));
    } else {
        (void)section.count("window_packets", 1, 1, 1);
    }
    flow.ack_packets = static_cast<std::uint32_t>(section.count("ack_packets", flow.ack_packets, 0, 1U << 20U));
    flow.retransmit_timeout = section.time("retransmit_timeout", flow.retransmit_timeout);
    flow.rate_limit = section.rate("rate_limit", flow.rate_limit, true);
    flow.dcqcn = section.flag("dcqcn", flow.dcqcn);
    flow.any_order = section.flag("any_order", flow.any_order);
    section.finish();
    return flow;
}

/// A cable that goes down for so long, so many times, at a distance.
void add_flapping(Section& section, packet::Fault fault, std::vector<packet::Fault>& faults) {
    const Time down_for = section.time("down_for", ps_per_ms);
    const Time period = section.time("period", 2 * down_for);
    const std::uint64_t times = section.count("times", 1, 1, 1'000'000);
    if (down_for == 0 || period <= down_for)
        section.fail("period", "must be longer than down_for, and that more than 0");
    for (std::uint64_t turn = 0; turn < times; ++turn) {
        fault.what = packet::Fault::What::down;
        faults.push_back(fault);
        fault.at += down_for;
        fault.what = packet::Fault::What::up;
        faults.push_back(fault);
        fault.at += period - down_for;
    }
}

void read_faults(Section& root, NetworkSettings& settings, std::size_t cables) {
    Time before = 0;
    for (Section& each : root.sections("faults")) {
        packet::Fault fault;
        fault.at = each.time("at", 0);
        fault.cable = static_cast<std::uint32_t>(each.count("cable", 0, 0, cables == 0 ? 0 : cables - 1));
        const std::size_t what = each.choice("what", 0, {"down", "up", "corrupt", "flap"});
        if (fault.at < before) each.fail("at", "is before the fault above; faults must be in the order of their times");
        before = fault.at;
        if (what == 3) {
            add_flapping(each, fault, settings.faults);
        } else {
            constexpr packet::Fault::What whats[]{packet::Fault::What::down, packet::Fault::What::up,
                                                  packet::Fault::What::corrupt};
            fault.what = whats[what];
            fault.per_million = each.per_million("share", 0);
            settings.faults.push_back(fault);
        }
        each.finish();
    }
    // Flapping goes on while others happen. Of the same time, they stay in the order of the file.
    std::multimap<Time, packet::Fault> by_time;
    for (const packet::Fault& fault : settings.faults)
        by_time.emplace(fault.at, fault);
    std::ranges::copy(by_time | std::views::values, settings.faults.begin());
}

void read_network(Section section, NetworkSettings& settings) {
    settings.seed = section.count("seed", settings.seed, 0, ~std::uint64_t{0} >> 1U);
    constexpr packet::Routing routings[]{packet::Routing::ecmp, packet::Routing::spray, packet::Routing::shift_aware};
    settings.routing = routings[section.choice("routing", 0, {"ecmp", "spray", "shift-aware"})];
    settings.reroute_after = section.time("reroute_after", settings.reroute_after);
    settings.unstored_bytes = static_cast<std::uint32_t>(section.bytes("unstored", settings.unstored_bytes, 0, 1024));
    settings.pause_bytes = static_cast<std::uint32_t>(section.bytes("pause_frame", settings.pause_bytes, 1, 1024));
    section.finish();
}

Fabric read_all(Section& root) {
    Fabric fabric;
    Section about = root.section("fabric");
    fabric.name = about.text("name", "");
    fabric.description = about.text("description", "");
    if (fabric.name.empty()) about.fail("name", "missing");
    about.finish();

    Kinds kinds;
    fabric.settings.hosts.clear();
    fabric.settings.switches.clear();
    for (auto& [name, section] : root.named_sections("hosts")) {
        kinds.hosts.emplace(name, static_cast<std::uint32_t>(fabric.settings.hosts.size()));
        fabric.settings.hosts.push_back(read_host(section));
    }
    for (auto& [name, section] : root.named_sections("switches")) {
        kinds.switches.emplace(name, static_cast<std::uint32_t>(fabric.settings.switches.size()));
        fabric.settings.switches.push_back(read_switch(section));
    }
    for (auto& [name, section] : root.named_sections("links"))
        kinds.links.emplace(name, read_link(section));
    Section network = root.section("network");
    fabric.fixes_seed = network.has("seed");
    read_network(std::move(network), fabric.settings);
    read_dcqcn(root.section("dcqcn"), fabric.settings.dcqcn);

    fabric.flow = read_flow(root.section("flow"));

    if (!root.has("topology")) root.fail("topology", "missing");
    Section shape = root.section("topology");
    if (root.has("topology")) fabric.topology = read_topology(shape, kinds);
    read_faults(root, fabric.settings, fabric.topology.cables.size());
    root.finish();
    return fabric;
}

}  // namespace

Result<Fabric> parse(std::string_view text, const std::string& file) {
    toml::table table;
    try {
        table = toml::parse(text);
    } catch (const toml::parse_error& error) {
        return Error{file + ":" + std::to_string(error.source().begin.line) + ": " + std::string(error.description())};
    }
    Problems problems{file, {}};
    Section root(problems, "", &table);
    Fabric fabric = read_all(root);
    if (problems.first) return *problems.first;
    // The model has rules of its own: cables without an end, destinations out of reach, trains beside pauses.
    if (const auto made = packet::Network::make(fabric.topology, fabric.settings); !made) {
        return Error{file + ": " + made.error().message};
    }
    return fabric;
}

Result<Ok> can_talk(const Fabric& fabric) {
    if (fabric.topology.host_count() < 2) return Ok{};
    auto network = packet::Network::make(fabric.topology, fabric.settings);
    if (!network) return network.error();
    FlowSettings settings = fabric.flow;
    settings.source = 0;
    settings.destination = 1;
    if (const auto opened = (*network)->open(settings); !opened) return opened.error();
    return Ok{};
}

Result<Fabric> read(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::ostringstream content;
    if (!in || !(content << in.rdbuf())) return Error{file.string() + ": cannot be read"};
    return parse(content.str(), file.string());
}

}  // namespace incast::sim::fabric
