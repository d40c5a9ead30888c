// What the config asks of the sources of a node.
#pragma once

#include "runtime/plan/resolve.h"
#include "runtime/sources/source.h"

namespace incast::runtime {

/// n_rus and the histogram of the plan have to be known.
sources::SizeOptions size_options(const Plan& plan);
sources::SourceOptions source_options(const Plan& plan);

}  // namespace incast::runtime
