#include "transport/builtin/bounds.h"

#include "transport/builtin/builtin.h"
#include "transport/rio/descriptor/descriptor.h"

namespace incast::transport {

Bounds bounds_of(std::string_view name, const Settings& settings) {
    return name == rio::transport_name ? rio::bounds_with(settings) : find_transport(name)->traits.nature.bounds;
}

}  // namespace incast::transport
