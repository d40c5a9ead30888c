// The configuration of a run as a person writes it (TOML and `--set key=value`), checked key by key.
// What follows from it (sizes, credits, memory) is worked out in resolve.h; the keys themselves are listed in
// config_table.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "ingest/packet.h"
#include "net/config.h"
#include "protocol/config.h"
#include "runtime/sinks/sink.h"
#include "runtime/sources/triggers.h"
#include "transport/builtin/builtin.h"
#include "transport/medium.h"

namespace incast::runtime {

enum class Task : std::uint8_t { build, net };
enum class Roles : std::uint8_t { folded, split };
enum class EmPlace : std::uint8_t { shared, own };
enum class Pin : std::uint8_t { automatic, network, never };
enum class OnLoss : std::uint8_t { carry_on, stop };
enum class SourceKind : std::uint8_t { generator, mfp, udp, program, tcp };
/// Fragments come from elsewhere, when they do (EB-C9).
constexpr bool comes_from_elsewhere(SourceKind kind) {
    return kind == SourceKind::udp || kind == SourceKind::tcp || kind == SourceKind::program;
}
enum class SizeDistribution : std::uint8_t { fixed, normal, lognormal, exponential, histogram };
enum class Fill : std::uint8_t { prefilled, generated };
enum class SecondStage : std::uint8_t { rest, all };
using SinkKind = sinks::Kind;
using sinks::Verify;
using Delivery = sinks::ConsumerOptions::Delivery;
using ConsumerPolicy = sinks::ConsumerOptions::Policy;
/// How the dispatchers of a simulated farm send.
enum class FarmNetwork : std::uint8_t { shared, own };
enum class FilterKind : std::uint8_t { share, plugin, command };

/// Every key once, in the table's order. The defaults stand in config_table.cpp alone. Where a key knows "auto", it is
/// 0 here.
struct RunConfig {
    // [run]
    Task task{};
    std::uint64_t nodes{};
    Roles roles{};
    std::uint64_t rus{};
    std::uint64_t bus{};
    EmPlace em{};
    Time duration{};
    std::uint64_t events{};
    Time warm_up{};
    std::uint64_t seed{};
    Time sample_interval{};
    std::string metrics;
    std::string network;
    std::string ports;
    OnLoss on_loss{};
    std::uint64_t least_rus{};
    std::uint64_t least_bus{};
    double fail_above_incomplete = 0;
    bool respawn{};
    std::uint64_t yields{};
    Pin pin{};
    Time join_deadline{};
    Time drain_deadline{};
    // [protocol]
    protocol::Scheme scheme{};
    protocol::Schedule schedule{};
    protocol::Assignment assignment{};
    Time inter_send_gap{};
    Time barrier_deadline{};
    Time slot_time{};
    protocol::Overrun overrun{};
    protocol::Layout layout{};
    std::uint64_t max_buffer_bytes{};
    std::uint64_t max_buffers{};
    protocol::SelfTraffic self_traffic{};
    protocol::Checksum checksum{};
    std::uint64_t credits{};
    std::uint64_t quarantine_slots{};
    std::uint64_t parallel_requests{};
    std::uint64_t parallel_sends{};
    std::uint64_t write_bytes{};  // protocol.message_size
    bool ack_per_write{};
    std::uint64_t outstanding_writes{};
    std::uint64_t packing{};
    std::uint64_t mfp_size{};
    std::uint64_t slot_bytes{};
    Time heartbeat{};
    Time detection_deadline{};
    Time late_after{};
    Time suspect_grace{};
    Time max_wait{};
    std::uint64_t max_attempts{};
    bool views{};
    double first_stage{};  // of the readout units, two-stage schemes
    SecondStage second_stage{};
    Time decision_deadline{};
    // [filter]
    FilterKind filter_kind{};
    double filter_accept{};
    std::string filter_path;
    std::string filter_argument;
    std::string filter_command;
    // [source]
    SourceKind source_kind{};
    std::string source_path;
    std::uint64_t repeat{};
    std::uint64_t fragment_size{};
    SizeDistribution size_distribution{};
    double size_sigma{};
    std::string size_histogram;
    double size_correlation{};
    std::uint64_t correlated_events{};
    double mean_ratio{};
    double hot_factor{};
    std::uint64_t hot_source{};
    std::uint64_t sources_per_ru{};
    double trigger_rate{};  // Hz; 0 = closed loop
    std::string trigger_steps;
    sources::Arrivals arrivals{};
    std::string arrival_trace;
    Time bunch_spacing{};
    std::uint64_t orbit_bunches{};
    std::uint64_t trains{};
    std::uint64_t train_bunches{};
    std::uint64_t train_gap{};
    sources::Policy policy{};
    Fill fill{};
    std::uint64_t memory{};
    std::uint64_t prefill_bytes{};
    std::string board_address;  // source.address
    std::string source_name;
    std::uint64_t board_port{};
    ingest::Format board_format{};
    std::uint64_t first_id{};
    std::uint64_t largest_mfp{};
    std::uint64_t window_meps{};
    Time board_patience{};
    // [sink]
    SinkKind sink_kind{};
    Verify verify{};
    std::string sink_path;
    sinks::Missing missing{};
    std::uint64_t file_bytes{};
    Time file_time{};
    sinks::Fsync fsync{};
    Time fsync_interval{};
    std::string command;
    std::uint64_t buffer_bytes{};
    sinks::OnFailure on_failure{};
    sinks::OnFull on_full{};
    std::string sink_name;
    Delivery delivery{};
    ConsumerPolicy consumer_policy{};
    std::uint64_t sink_consumers{};
    std::uint64_t window{};
    Time patience{};
    Time reuse_wait{};
    // [farm]
    std::uint64_t farm_nodes{};
    FarmNetwork farm_network{};
    std::uint64_t farm_dispatchers{};
    std::uint64_t farm_window{};
    std::uint64_t farm_processes{};
    Time farm_work{};
    // [net]
    net::Pattern net_pattern{};
    std::uint64_t producers{};
    std::uint64_t consumers{};
    bool duplex{};
    net::Measure measure{};
    net::Operation operation{};
    std::uint64_t message_size{};
    std::uint64_t queues{};
    std::uint64_t outstanding{};
    std::uint64_t sends{};
    std::uint64_t ping_size{};
    std::uint64_t messages{};
    net::Buffers buffers{};
    std::uint64_t working_set{};
    bool net_verify{};
    // [transport]
    std::string transport;
    transport::Settings transport_settings;  // [transport.<name>] of the transport in use
    [[nodiscard]] const transport::Traits& traits() const { return transport::find_transport(transport)->traits; }
};

/// Keys with the text a person gave for them; later assignments win.
class ConfigText {
public:
    /// Adds every key of a TOML file. Error: unreadable, not TOML, or an unknown key (with the nearest known one).
    Result<Ok> read_toml(const std::filesystem::path& file);
    /// "section.key=value".
    Result<Ok> assign(std::string_view assignment);
    Result<Ok> set(const std::string& key, const std::string& value);

    /// Checks every value on its own; the error names key, value and what is allowed.
    [[nodiscard]] Result<RunConfig> parse() const;
    /// One line on keys that were given by their names of the last version; empty if there are none.
    [[nodiscard]] std::string warning() const;
    /// What was given explicitly, by key.
    [[nodiscard]] const std::map<std::string, std::string>& given() const { return values_; }

private:
    std::map<std::string, std::string> values_;
    std::set<std::string> former_names_;
};

/// All keys and the values in force, as text that ConfigText takes back; used to hand a config to other processes and
/// to results.
[[nodiscard]] std::map<std::string, std::string> config_values(const ConfigText& text);

/// Such values as a TOML file that read_toml takes back.
[[nodiscard]] std::string config_toml(const std::map<std::string, std::string>& values);

/// docs/config.md and schema/config.schema.json, made from the table (and from the transports' own lists).
[[nodiscard]] std::string config_reference();
[[nodiscard]] std::string config_schema();

}  // namespace incast::runtime
