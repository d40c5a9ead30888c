#include "transport/module.h"

#include "transport/rio/descriptor/descriptor.h"
#include "transport/rio/rio.h"

namespace {

const incast::transport::Descriptor rio = [] {
    incast::transport::Descriptor whole = incast::transport::rio::describe();
    whole.make = incast::transport::rio::make;
    return whole;
}();

}  // namespace

INCAST_TRANSPORT_MODULE(rio)
