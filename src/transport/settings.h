// A transport's settings, checked against its list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/medium.h"

namespace incast::transport {

/// Where an endpoint may listen, tried in turn. 0: the kernel chooses.
struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
};

/// Binds to the first that is free. `bind`: 0 or an errno; `address`: for the error, with any port.
Result<Ok> bind_in(PortRange ports, std::string_view address, const std::function<int(std::uint16_t)>& bind);

/// Every transport with ports of its own has this one.
inline constexpr base::Setting ports_setting =
    base::text("ports", "any",
               "ports that an endpoint may listen at, as 40000-40999, where a firewall lets only these through; any: "
               "the kernel chooses",
               "any, or FIRST-LAST");

/// A value for every setting of the list: as set, or its default.
class Values {
public:
    /// Error: one line that names the first setting that is not in the list, with the nearest one, or whose text is
    /// none of its values. `list` outlives this.
    static Result<Values> read(std::string_view transport, std::span<const base::Setting> list, const Settings& given);

    // The name is in the list, with a kind that fits.
    [[nodiscard]] std::uint64_t whole(std::string_view name) const { return get<std::uint64_t>(name); }
    [[nodiscard]] double number(std::string_view name) const { return get<double>(name); }
    [[nodiscard]] Time time(std::string_view name) const { return get<Time>(name); }
    [[nodiscard]] const std::string& text(std::string_view name) const { return get<std::string>(name); }
    /// Enum has one value for each word, in their order.
    template <typename Enum>
    [[nodiscard]] Enum choice(std::string_view name) const {
        return static_cast<Enum>(whole(name));
    }
    /// The word that was chosen.
    [[nodiscard]] std::string_view word(std::string_view name) const {
        return list_[index_of(name)].choices[whole(name)];
    }

    /// Of a text such as "40000-40999", or "any".
    [[nodiscard]] Result<PortRange> ports(std::string_view name) const;

    /// For what the list cannot say: one line with the whole name, the value as it was given, and what is allowed.
    [[nodiscard]] Error refuse(std::string_view name, std::string_view problem) const;

private:
    [[nodiscard]] std::size_t index_of(std::string_view name) const;
    template <typename T>
    [[nodiscard]] const T& get(std::string_view name) const {
        return std::get<T>(values_[index_of(name)]);
    }

    std::string transport_;
    std::span<const base::Setting> list_;
    std::vector<base::Value> values_;
    std::vector<std::string> texts_;
};

}  // namespace incast::transport
