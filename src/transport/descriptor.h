// What is known of a transport before it is used.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <incast/result.h>

#include "base/setting.h"
#include "transport/medium.h"

namespace incast::transport {

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
};

}  // namespace incast::transport
