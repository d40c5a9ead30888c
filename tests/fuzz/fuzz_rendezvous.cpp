// A lying process at the rendezvous: arbitrary bytes as frames, as a node's sample, as addresses. Nothing may crash,
// and what is taken in must come out the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/launch/agreement.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/record/metrics.h"

using namespace incast;
using namespace incast::runtime;

namespace {

bool deeper_than(const Json& json, unsigned levels) {
    return json.is_structured() && (levels == 0 || std::ranges::any_of(json, [levels](const Json& each) {
                                        return deeper_than(each, levels - 1);
                                    }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view input(reinterpret_cast<const char*>(data), size);
    // As at the coordinator: before the token was seen, or of a node.
    const bool known = size % 2 == 1;
    const FrameLimits limits = known ? FrameLimits{max_sample_frame(4), max_small_frame} : FrameLimits{};
    FrameReader reader;
    while (!input.empty()) {
        const std::size_t piece = std::min<std::size_t>(input.size(), 1 + static_cast<unsigned char>(input[0]));
        reader.append(input.substr(0, piece));
        input.remove_prefix(piece);
        while (true) {
            Result<std::optional<Json>> received = reader.next(limits);
            if (!received) {
                return 0;
            }
            if (!received->has_value()) {
                break;
            }
            const Json& message = **received;
            if (type_of(message).size() > limits.most || number_in(message, "n") == std::uint64_t{size} + 1) {
                return 0;  // both were read: that is what matters here
            }
            if (one_line(type_of(message)).find('\n') != std::string::npos || deeper_than(message, max_nesting)) {
                std::abort();
            }
            // Whatever its versions are: a line of a bounded length, or a version that this program speaks.
            Agreement agreement;
            std::uint8_t version = 1;
            const std::string why =
                wrong_rendezvous_version(message) + agreement.take(control_versions_of(message), program_of(message));
            const bool taken = take_decision(message, version).ok();
            if (why.find('\n') != std::string::npos || why.size() > 500 ||
                !wire::control_versions.contains(agreement.decide()) ||
                (taken && !wire::control_versions.contains(version))) {
                std::abort();
            }
            if (const auto address = text_in(message, "address")) {
                const std::optional<Blob> blob = blob_from_hex(*address);
                if (blob && to_hex(blob->view()) != *address) {
                    std::abort();
                }
            }
            const Result<NodeSample> sample =
                sample_from_json(message.contains("sample") ? message["sample"] : message);
            if (sample && !sample_from_json(Json::parse(to_json(*sample).dump(
                              -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)))) {
                std::abort();
            }
        }
    }
    return 0;
}
