#include "runtime/launch/whereabouts.h"

#include <array>
#include <climits>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "os/socket.h"
#include "runtime/launch/pinning.h"

namespace incast::runtime {
namespace {

constexpr std::array texts{"host", "address", "interface", "cores", "seat", "folder"};
constexpr std::array numbers{"mtu", "link_bits_per_s", "numa_node", "memory_node"};

}  // namespace

std::string host_name() {
    std::array<char, HOST_NAME_MAX + 1> name{};
    return gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0 ? name.data() : "a host without a name";
}

Json whereabouts(const std::optional<NetworkPlace>& place, const Seat& seat, const std::string& folder) {
    Json said{{"host", host_name()}};
    if (place) {
        said["address"] = place->address;
        if (!place->interface.empty()) said["interface"] = place->interface;
        if (place->mtu != 0) said["mtu"] = place->mtu;
        if (place->link_bits_per_s) said["link_bits_per_s"] = *place->link_bits_per_s;
        if (place->numa_node) said["numa_node"] = *place->numa_node;
    }
    if (!seat.cores.empty()) said["cores"] = list_of(seat.cores);
    if (seat.memory_node) said["memory_node"] = *seat.memory_node;
    if (!seat.why.empty()) said["seat"] = seat.why;
    if (!folder.empty()) said["folder"] = folder;
    return said;
}

nlohmann::ordered_json checked_whereabouts(const Json& message) {
    const auto said = message.find("place");
    if (said == message.end() || !said->is_object() || !text_in(*said, "host")) {
        return nullptr;
    }
    nlohmann::ordered_json checked;
    for (const char* key : texts) {
        if (const std::optional<std::string> text = text_in(*said, key)) checked[key] = one_line(*text);
    }
    for (const char* key : numbers) {
        if (const std::optional<std::uint64_t> number = number_in(*said, key)) checked[key] = *number;
    }
    return checked;
}

bool is_elsewhere(const std::filesystem::path& file, const nlohmann::ordered_json& place) {
    std::error_code code;
    return place.contains("folder") && !std::filesystem::exists(file, code);
}

Result<std::optional<NetworkPlace>> choose_address(const Plan& plan, int coordinator_fd,
                                                   transport::Settings& settings) {
    const RunConfig& config = plan.config;
    if (!config.network.empty() && !settings.contains("bind")) {
        const Result<std::string> address = address_on(config.network);
        if (!address) {
            return Error{fmt::format("run.network = {}: {}: {}", config.network, host_name(), address.error().message)};
        }
        settings["bind"] = *address;
    }
    if (const std::string_view bind = config.traits().bind; !bind.empty()) {
        settings.try_emplace(std::string(bind), os::local_host(coordinator_fd));
    }
    const auto bind = settings.find("bind");
    // Of several rails the first one's.
    NetworkPlace place =
        bind == settings.end() ? NetworkPlace{} : place_of(bind->second.substr(0, bind->second.find('+')));
    return place.interface.empty() ? std::nullopt : std::optional(std::move(place));
}

Seat sit_down(const Plan& plan, const std::optional<NetworkPlace>& place, const transport::Settings& settings,
              std::uint32_t nodes_here) {
    if (plan.config.pin == Pin::never) {
        return {{}, {}, "run.pin = never"};
    }
    const bool is_asked = plan.config.pin == Pin::network;
    if (!is_asked && !may_pin(plan)) {
        return {{}, {}, "other programs belong to the run"};
    }
    const auto device = settings.find("device");
    Seat seat = choose_seat("/sys", {.interface = place ? place->interface : "",
                                     .rdma_device = device == settings.end() ? "" : device->second,
                                     .nodes_here = nodes_here,
                                     .is_asked = is_asked,
                                     .allowed = allowed_cores()});
    take_seat(seat);
    return seat;
}

}  // namespace incast::runtime
