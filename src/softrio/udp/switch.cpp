#include "softrio/udp/switch.h"

#include <string_view>
#include <utility>

namespace incast::softrio::udp {

std::size_t Switch::Hash::operator()(const Address& address) const {
    const std::string_view ip(reinterpret_cast<const char*>(address.ip.data()), address.ip.size());
    return std::hash<std::string_view>()(ip) * 31 + address.port;
}

void Switch::program(RoutingTable table) {
    table_ = std::move(table);
    path_ = {};
}

std::uint32_t Switch::free_port() const {
    std::uint32_t port = 0;
    const auto is_taken = [&] {
        const auto known = ports_.find(port);
        return table_.is_kept(port) || (known != ports_.end() && known->second.destid != 0);
    };
    while (is_taken())
        ++port;
    return port;
}

std::uint32_t Switch::plug(std::uint32_t destid, const Address& at) {
    const auto wanted = table_.ports.find(destid);
    // Whoever has it had another id before, or was there before the table.
    const bool has_own = wanted != table_.ports.end() && ports_[wanted->second].destid == 0;
    const std::uint32_t number = has_own ? wanted->second : free_port();
    Port& port = ports_[number];
    port.destid = destid;
    port.at = at;
    by_destid_.emplace(destid, number);
    by_address_.emplace(at, number);
    path_ = {};
    return number;
}

void Switch::rename(std::uint32_t before, std::uint32_t destid) {
    const std::uint32_t number = port_of(before);
    by_destid_.erase(before);
    by_destid_.emplace(destid, number);
    ports_.at(number).destid = destid;
    path_ = {};
}

void Switch::unplug(std::uint32_t destid) {
    Port& port = ports_.at(port_of(destid));
    by_address_.erase(port.at);
    by_destid_.erase(destid);
    port.destid = 0;
    path_ = {};
}

Switch::Path Switch::find_path(const Address& from, std::uint32_t destid) {
    Path path{from, destid};
    const auto input = by_address_.find(from);
    if (input == by_address_.end()) return path;
    path.in = &ports_.at(input->second);
    RoutingTable::Route route = table_.route(input->second, destid);
    if (route == RoutingTable::own) {
        const auto found = by_destid_.find(destid);
        route = found == by_destid_.end() ? RoutingTable::discard : found->second;
    }
    const auto output = ports_.find(route);
    if (output != ports_.end() && output->second.destid != 0) path.out = &output->second;
    return path;
}

std::optional<Switch::Onward> Switch::forward(const Address& from, std::uint32_t destid, std::size_t bytes) {
    if (path_.in == nullptr || path_.destid != destid || !(path_.from == from)) path_ = find_path(from, destid);
    if (path_.in == nullptr) {
        ++strangers_;
        return std::nullopt;
    }
    Counters& in = path_.in->counters;
    ++in.datagrams_in;
    in.bytes_in += bytes;
    if (path_.out == nullptr) {
        ++in.discarded;
        return std::nullopt;
    }
    Counters& out = path_.out->counters;
    ++out.datagrams_out;
    out.bytes_out += bytes;
    return Onward{path_.in->destid, path_.out->at};
}

}  // namespace incast::softrio::udp
