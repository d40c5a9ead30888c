// THE list of transports. Everybody takes them from here: engine, command line, documents, conformance suite.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <incast/result.h>

#include "base/setting.h"
#include "transport/medium.h"

namespace incast::transport {

struct Builtin {
    std::string_view name;
    std::string_view summary;
    Traits traits;
    std::span<const base::Setting> settings;  // the tables in docs/transports are made from these
    Result<std::unique_ptr<Medium>> (*make)(const Settings&);
};

std::span<const Builtin> builtin_transports();
/// nullptr if there is none of that name.
const Builtin* find_transport(std::string_view name);
/// What "auto" means.
const Builtin& chosen_transport(bool across_hosts);

}  // namespace incast::transport
