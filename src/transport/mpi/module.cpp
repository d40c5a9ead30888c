#include "transport/module.h"

#include "transport/mpi/descriptor/descriptor.h"
#include "transport/mpi/mpi.h"

namespace {

// Compiled for each library, as library.cpp.
const incast::transport::Descriptor mpi = [] {
    incast::transport::Descriptor whole = incast::transport::mpi::describe();
    whole.name = INCAST_MPI_MODULE;
    whole.make = incast::transport::mpi::make;
    return whole;
}();

}  // namespace

INCAST_TRANSPORT_MODULE(mpi)
