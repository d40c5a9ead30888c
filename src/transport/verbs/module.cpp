#include "transport/module.h"

#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/verbs.h"

namespace {

const incast::transport::Descriptor verbs = [] {
    incast::transport::Descriptor whole = incast::transport::verbs::describe();
    whole.make = incast::transport::verbs::make;
    return whole;
}();

}  // namespace

INCAST_TRANSPORT_MODULE(verbs)
