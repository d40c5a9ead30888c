#include "transport/rio/rio.h"

#include <bit>

#include "transport/cache_of_host.h"
#include "transport/rio/descriptor/descriptor.h"
#include "transport/rio/endpoint.h"
#include "transport/settings.h"

namespace incast::transport::rio {

namespace {

class Rio final : public Medium {
public:
    explicit Rio(EndpointSettings settings) : settings_(std::move(settings)) {}
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
    for (const std::string_view name : {"segment", "pool"}) {
        if (values->whole(name) % api::page_bytes != 0) return values->refuse(name, "no multiple of 4 KiB");
    }
    EndpointSettings made;
    made.fabric = values->text("fabric");
    for (const std::string_view name : {"order", "limits", "link"}) {
        if (values->whole(name) == 0) continue;  // what a fabric is without being told
        made.fabric_options.append(made.fabric_options.empty() ? "" : "&")
            .append(name)
            .append("=")
            .append(values->word(name));
    }
    made.stores = values->choice<EndpointSettings::Stores>("stores");
    made.cache_bytes = usable_cache_bytes();
    made.notice = values->choice<NoticeKind>("notice");
    const std::uint64_t segment_bytes = values->whole("segment");
    made.layout = values->word("layout") == "segments" ? Layout{segment_bytes, segment_bytes}
                                                       : Layout{values->whole("pool"), max_window_bytes};
    made.dma_channels = static_cast<std::uint32_t>(values->whole("dma_channels"));
    made.ring_bytes = static_cast<std::uint32_t>(values->whole("ring"));
    if (!std::has_single_bit(made.ring_bytes)) return values->refuse("ring", "no power of two");
    made.poll_every = values->time("poll_every");
    made.look_every = values->time("look_every");
    made.connect_timeout = values->time("connect_timeout");
    return std::unique_ptr<Medium>(std::make_unique<Rio>(made));
}

}  // namespace incast::transport::rio
