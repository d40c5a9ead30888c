#include "transport/module.h"

#include "transport/ucx/descriptor/descriptor.h"
#include "transport/ucx/ucx.h"

namespace {

const incast::transport::Descriptor ucx = [] {
    incast::transport::Descriptor whole = incast::transport::ucx::describe();
    whole.make = incast::transport::ucx::make;
    return whole;
}();

}  // namespace

INCAST_TRANSPORT_MODULE(ucx)
