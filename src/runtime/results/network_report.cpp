#include "runtime/results/network_report.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "runtime/config/json.h"
#include "runtime/report/table_file.h"

namespace incast::runtime {
namespace {

using base::seconds;
using sim::packet::PortCounters;
using sim::packet::PortIndex;
using sim::packet::QueueRecord;
using sim::packet::Recorder;
using sim::packet::SeriesPoint;
using sim::packet::Topology;

constexpr std::size_t worst_queues = 10;  // in result.json; all are in the table

class Report {
public:
    Report(const RecordedNetwork& recorded, Reporter& reporter)
        : recorded_(recorded),
          topology_(recorded.fabric.topology),
          recorder_(recorded.recorder),
          window_(recorder_.window_end() - recorder_.window_begin()),
          reporter_(reporter) {}

    void write() const {
        write_ports();
        write_queues();
        write_series();
    }
    [[nodiscard]] OrderedJson json() const;

private:
    [[nodiscard]] const Topology::Node& from(PortIndex port) const {
        const Topology::Cable& cable = topology_.cables[port / 2];
        return topology_.nodes[port % 2 == 0 ? cable.one : cable.two];
    }
    [[nodiscard]] const std::string& to(PortIndex port) const {
        const Topology::Cable& cable = topology_.cables[port / 2];
        return topology_.nodes[port % 2 == 0 ? cable.two : cable.one].name;
    }
    [[nodiscard]] double utilisation(PortIndex port, std::uint64_t bytes, Time time) const {
        const Topology::Cable& cable = topology_.cables[port / 2];
        const auto bits = static_cast<double>(cable.rate.bits_per_s);
        return time > 0 ? static_cast<double>(bytes) * 8 / bits / seconds(time) : 0.0;
    }
    void write_ports() const;
    void write_queues() const;
    void write_series() const;
    [[nodiscard]] OrderedJson links() const;
    [[nodiscard]] OrderedJson queues() const;

    const RecordedNetwork& recorded_;
    const Topology& topology_;
    const Recorder& recorder_;
    Time window_;
    Reporter& reporter_;
};

void Report::write_ports() const {
    TableFile out(reporter_, "network_ports.csv");
    out.add(
        "port,from,to,bits_per_s,utilisation,packets,bytes,marked,dropped,lost,pauses_sent,pauses_heard,paused_s,"
        "repeated\n");
    std::uint32_t host = 0;
    std::vector<std::uint64_t> repeated(topology_.nodes.size());
    for (std::size_t node = 0; node < topology_.nodes.size(); ++node)
        if (topology_.nodes[node].is_host) repeated[node] = recorded_.repeated[host++];
    for (PortIndex port = 0; port < recorder_.ports().size(); ++port) {
        const PortCounters& counters = recorder_.ports()[port];
        const Topology::Node& node = from(port);
        const auto index = static_cast<std::size_t>(&node - topology_.nodes.data());
        out.add(fmt::format("{},{},{},{},{:.6f},{},{},{},{},{},{},{},{:.9f},{}\n", port, node.name, to(port),
                            topology_.cables[port / 2].rate.bits_per_s, utilisation(port, counters.bytes, window_),
                            counters.packets, counters.bytes, counters.marked, counters.dropped, counters.lost,
                            counters.pauses_sent, counters.pauses_heard, seconds(counters.paused_time),
                            repeated[index]));
    }
}

void Report::write_queues() const {
    TableFile out(reporter_, "network_queues.csv");
    out.add("port,from,to,class,mean_bytes,p50_bytes,p90_bytes,p99_bytes,max_bytes\n");
    for (const QueueRecord& queue : recorder_.queues())
        out.add(fmt::format("{},{},{},{},{:.1f},{},{},{},{}\n", queue.port, from(queue.port).name, to(queue.port),
                            queue.traffic_class, queue.mean_bytes, queue.p50_bytes, queue.p90_bytes, queue.p99_bytes,
                            queue.peak_bytes));
}

void Report::write_series() const {
    TableFile out(reporter_, "network_series.csv");
    out.add("t_s,port,from,to,utilisation,queue_mean_bytes,queue_max_bytes,marked,dropped,lost,pauses_heard,paused\n");
    for (std::size_t interval = 0; interval < recorder_.intervals(); ++interval) {
        for (PortIndex port = 0; port < recorder_.ports().size(); ++port) {
            const SeriesPoint& point = recorder_.point(interval, port);
            if (point.sent_bytes == 0 && point.peak_queue_bytes == 0 && point.paused_time == 0) continue;
            out.add(fmt::format("{:.9f},{},{},{},{:.4f},{},{},{},{},{},{},{:.4f}\n",
                                seconds(static_cast<Time>(interval) * recorder_.interval()), port, from(port).name,
                                to(port), utilisation(port, point.sent_bytes, recorder_.interval()),
                                point.mean_queue_bytes, point.peak_queue_bytes, point.marked, point.dropped, point.lost,
                                point.pauses_heard, seconds(point.paused_time) / seconds(recorder_.interval())));
        }
    }
}

/// The utilisation of those that carried anything.
OrderedJson Report::links() const {
    double sum = 0;
    double most = 0;
    std::uint64_t used = 0;
    PortIndex busiest = 0;
    for (PortIndex port = 0; port < recorder_.ports().size(); ++port) {
        const std::uint64_t bytes = recorder_.ports()[port].bytes;
        if (bytes == 0) continue;
        const double share = utilisation(port, bytes, window_);
        ++used;
        sum += share;
        if (share > most) {
            most = share;
            busiest = port;
        }
    }
    OrderedJson json{{"used", used}, {"utilisation_mean", used > 0 ? sum / static_cast<double>(used) : 0.0}};
    json["utilisation_max"] = most;
    json["busiest"] = used > 0 ? OrderedJson(recorded_.network.name(busiest)) : OrderedJson(nullptr);
    return json;
}

OrderedJson Report::queues() const {
    std::vector<QueueRecord> sorted;
    for (const QueueRecord& queue : recorder_.queues())
        if (!from(queue.port).is_host) sorted.push_back(queue);
    std::ranges::sort(sorted, [](const QueueRecord& a, const QueueRecord& b) {
        return std::tie(b.peak_bytes, a.port, a.traffic_class) < std::tie(a.peak_bytes, b.port, b.traffic_class);
    });
    sorted.resize(std::min(sorted.size(), worst_queues));
    OrderedJson json = OrderedJson::array();
    for (const QueueRecord& queue : sorted)
        json.push_back({{"port", recorded_.network.name(queue.port)},
                        {"class", queue.traffic_class},
                        {"mean_bytes", queue.mean_bytes},
                        {"p50_bytes", queue.p50_bytes},
                        {"p90_bytes", queue.p90_bytes},
                        {"p99_bytes", queue.p99_bytes},
                        {"max_bytes", queue.peak_bytes}});
    return json;
}

OrderedJson Report::json() const {
    PortCounters sum;
    for (const PortCounters& one : recorder_.ports()) {
        sum.packets += one.packets;
        sum.bytes += one.bytes;
        sum.data_packets += one.data_packets;
        sum.marked += one.marked;
        sum.dropped += one.dropped;
        sum.lost += one.lost;
        sum.pauses_sent += one.pauses_sent;
        sum.paused_time += one.paused_time;
    }
    std::uint64_t repeated = 0;
    for (const std::uint64_t packets : recorded_.repeated)
        repeated += packets;
    OrderedJson deadlocks = OrderedJson::array();
    for (const sim::packet::Deadlock& deadlock : recorded_.network.find_deadlocks()) {
        OrderedJson ports = OrderedJson::array();
        for (const PortIndex port : deadlock.ports)
            ports.push_back(recorded_.network.name(port));
        deadlocks.push_back({{"class", deadlock.traffic_class}, {"ports", std::move(ports)}});
    }
    return {{"fabric", recorded_.fabric.name},
            {"hosts", topology_.host_count()},
            {"switches", topology_.nodes.size() - topology_.host_count()},
            {"cables", topology_.cables.size()},
            {"window", {{"begin_s", seconds(recorder_.window_begin())}, {"end_s", seconds(recorder_.window_end())}}},
            {"totals",
             {{"hops", sum.data_packets},
              {"packets", sum.packets},
              {"bytes", sum.bytes},
              {"marked", sum.marked},
              {"dropped", sum.dropped},
              {"lost", sum.lost},
              {"repeated", repeated},
              {"pauses", sum.pauses_sent},
              {"paused_s", seconds(sum.paused_time)}}},
            {"links", links()},
            {"fullest_queues", queues()},
            {"probes", recorder_.probes()},
            {"deadlocks", std::move(deadlocks)},
            {"series", {{"interval_s", seconds(recorder_.interval())}, {"intervals", recorder_.intervals()}}}};
}

}  // namespace

OrderedJson report_network(const RecordedNetwork& recorded, Reporter& reporter) {
    const Report report(recorded, reporter);
    report.write();
    return report.json();
}

OrderedJson report_network(sim::PacketModel& model, Reporter& reporter) {
    return report_network({model.fabric(), model.network(), *model.recorder(), model.repeated()}, reporter);
}

}  // namespace incast::runtime
