// MPI: messages between the processes that one launcher has started. See docs/transports/mpi.md.
#pragma once

#include <memory>

#include "transport/medium.h"

namespace incast::transport::mpi {

Result<std::unique_ptr<Medium>> make(const Settings& given);

}  // namespace incast::transport::mpi
