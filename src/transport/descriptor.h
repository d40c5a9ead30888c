// What is known of a transport before it is used.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "base/setting.h"
#include "transport/medium.h"

namespace incast::transport {

/// Which of the processes that a launcher started this is.
struct Rank {
    std::uint32_t number = 0;
    std::uint32_t of = 0;  // 0: it does not say
};

/// Of a transport whose nodes are started by a launcher of its own (Nature::launch): each is one process of it, and its
/// rank is the node's number.
struct Launch {
    std::optional<Rank> (*rank_here)();  // nothing: no launcher started this process
    std::span<const std::string_view> modules;
    Result<std::string> (*module_for)(const Settings&);  // the one that fits the launcher
    /// The command line before the program that is to be started so many times. Error: one line.
    Result<std::vector<std::string>> (*words_for)(std::uint32_t nodes, const Settings&);
};

struct Descriptor {
    std::string_view name;
    std::string_view summary;
    Traits traits;
    std::span<const base::Setting> settings;         // the tables in docs/transports are made from these
    std::span<const base::FormerName> former_names;  // of these settings, in the last version
    Result<std::unique_ptr<Medium>> (*make)(const Settings&) = nullptr;  // null: a module has it (module.h)
    std::string_view package = "incast";                                 // that brings what it needs
    std::string_view untested = {};                                      // what of it no hardware has shown yet
    std::string (*missing_here)() = nullptr;  // why no endpoint can be made on this host, or empty; null: it always can
    const Launch* launch = nullptr;
};

}  // namespace incast::transport
