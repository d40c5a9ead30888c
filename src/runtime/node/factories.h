// The source, the sink and the filter of a node, as the run's config asks for them.
#pragma once

#include <cstdint>
#include <memory>

#include <incast/result.h>

#include "runtime/plan/resolve.h"
#include "runtime/sinks/sink.h"
#include "runtime/sources/source.h"

namespace incast::runtime {

Result<std::unique_ptr<sources::RuntimeSource>> make_source(const Plan& plan);
Result<std::unique_ptr<sinks::RuntimeSink>> make_sink(const Plan& plan, std::uint32_t node, std::uint32_t incarnation,
                                                      bool phantom_bodies);
/// Nothing if the scheme asks for none.
Result<std::unique_ptr<protocol::Filter>> make_filter(const Plan& plan, std::uint32_t node);

}  // namespace incast::runtime
