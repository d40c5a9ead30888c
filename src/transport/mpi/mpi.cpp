#include "transport/mpi/mpi.h"

#include "base/units.h"
#include "transport/mpi/descriptor/descriptor.h"
#include "transport/mpi/endpoint.h"
#include "transport/settings.h"

namespace incast::transport::mpi {

namespace {

class Mpi final : public Medium {
public:
    explicit Mpi(EndpointSettings settings) : settings_(settings) {}
    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        return Endpoint::make(settings_, options);
    }

private:
    EndpointSettings settings_;
};

}  // namespace

Result<std::unique_ptr<Medium>> make(const Settings& given) {
    const Result<Values> values = Values::read(transport_name, settings(), given);
    if (!values) return values.error();
    const EndpointSettings made{.streams = static_cast<std::uint32_t>(values->whole("streams")),
                                .chunks = static_cast<std::uint32_t>(values->whole("chunks")),
                                .chunk_bytes = static_cast<std::uint32_t>(values->whole("chunk")),
                                .copy_below_bytes = static_cast<std::uint32_t>(values->whole("copy_below")),
                                .connect_timeout = values->time("connect_timeout")};
    return std::unique_ptr<Medium>(std::make_unique<Mpi>(made));
}

}  // namespace incast::transport::mpi
