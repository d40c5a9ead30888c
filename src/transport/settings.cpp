#include "transport/settings.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

namespace incast::transport {
namespace {

std::string whole_name(std::string_view transport, std::string_view name) {
    return std::string("transport.").append(transport).append(".").append(name);
}

Error unknown(std::string_view transport, std::span<const base::Setting> list, std::string_view name) {
    std::vector<std::string_view> names;
    std::string all;
    for (const base::Setting& setting : list) {
        names.push_back(setting.name);
        all.append(all.empty() ? "" : ", ").append(setting.name);
    }
    std::string line = "unknown key '" + whole_name(transport, name) + "'";
    if (const std::string_view near = base::nearest(name, names); !near.empty()) {
        line += "; did you mean '" + whole_name(transport, near) + "'?";
    }
    line.append("; allowed in [transport.").append(transport).append("]: ");
    return Error{line.append(all.empty() ? "nothing" : all)};
}

}  // namespace

Result<Ok> bind_in(PortRange ports, std::string_view address, const std::function<int(std::uint16_t)>& bind) {
    int error = EADDRINUSE;
    for (unsigned port = ports.first; port <= ports.last && error == EADDRINUSE; ++port) {
        error = bind(static_cast<std::uint16_t>(port));
    }
    if (error == 0) return Ok{};
    if (error == EADDRINUSE && ports.first != 0) {
        return Error{"no port of " + std::to_string(ports.first) + "-" + std::to_string(ports.last) + " is free at " +
                     std::string(address.substr(0, address.rfind(':')))};
    }
    return Error{"bind to " + std::string(address) + ": " + std::generic_category().message(error)};
}

Result<Values> Values::read(std::string_view transport, std::span<const base::Setting> list, const Settings& given) {
    for (const auto& [name, value] : given) {
        if (std::ranges::find(list, name, &base::Setting::name) == list.end()) return unknown(transport, list, name);
    }
    Values made;
    made.transport_ = transport;
    made.list_ = list;
    for (const base::Setting& setting : list) {
        const auto found = given.find(std::string(setting.name));
        const std::string text = found == given.end() ? std::string(setting.default_value) : found->second;
        Result<base::Value> value = base::parse(setting, text);
        if (!value) {
            return base::refuse(whole_name(transport, setting.name), setting, text, value.error().message);
        }
        made.values_.push_back(std::move(*value));
        made.texts_.push_back(text);
    }
    return made;
}

Result<PortRange> Values::ports(std::string_view name) const {
    const std::string_view given = text(name);
    const std::size_t dash = given.find('-');
    PortRange range;
    const auto number = [](std::string_view digits, std::uint16_t& port) {
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
        return error == std::errc() && end == digits.data() + digits.size() && port > 0;
    };
    if (given == "any" || (dash != std::string_view::npos && number(given.substr(0, dash), range.first) &&
                           number(given.substr(dash + 1), range.last) && range.first <= range.last)) {
        return range;
    }
    return refuse(name, "no range of ports");
}

Error Values::refuse(std::string_view name, std::string_view problem) const {
    const std::size_t index = index_of(name);
    return base::refuse(whole_name(transport_, name), list_[index], texts_[index], problem);
}

std::size_t Values::index_of(std::string_view name) const {
    return static_cast<std::size_t>(std::ranges::find(list_, name, &base::Setting::name) - list_.begin());
}

}  // namespace incast::transport
