#include "transport/module.h"

#include "transport/ofi/descriptor/descriptor.h"
#include "transport/ofi/ofi.h"

namespace {

const incast::transport::Descriptor ofi = [] {
    incast::transport::Descriptor whole = incast::transport::ofi::describe();
    whole.make = incast::transport::ofi::make;
    return whole;
}();

}  // namespace

INCAST_TRANSPORT_MODULE(ofi)
