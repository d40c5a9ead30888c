#include "runtime/launch/input_messages.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace incast::runtime {
namespace {

using sources::InputFile;

/// In a message with what one file brings: numbers, in this order.
constexpr std::uint64_t InputFile::* told_numbers[] = {
    &InputFile::mfps,        &InputFile::events,      &InputFile::first_event,     &InputFile::left_out_mfps,
    &InputFile::left_out_at, &InputFile::left_out_id, &InputFile::left_out_events, &InputFile::absent_events,
};
constexpr std::size_t files_in_a_message = 32;  // 8 numbers of 20 digits each: within max_small_frame
constexpr std::size_t max_host_bytes = 64;

}  // namespace

Json to_json(const Recorded& recorded) {
    Json sources = Json::array();
    for (const Recorded::Source& source : recorded.sources) {
        sources.push_back({source.id, source.largest_bytes});
    }
    return {{"packing", recorded.numbering.packing},
            {"first_event", recorded.numbering.first_event},
            {"events", recorded.numbering.total_events},
            {"sources", std::move(sources)}};
}

std::optional<Recorded> recorded_from_json(const Json& json) {
    const std::optional<std::uint64_t> packing = number_in(json, "packing");
    const std::optional<std::uint64_t> first_event = number_in(json, "first_event");
    const std::optional<std::uint64_t> events = number_in(json, "events");
    const auto sources = json.find("sources");
    if (!packing || !first_event || !events || *packing == 0 || *packing > 65535 || *events == 0 ||
        sources == json.end() || !sources->is_array()) {
        return {};
    }
    Recorded recorded{{static_cast<std::uint32_t>(*packing), *first_event, *events}, {}};
    for (const Json& source : *sources) {
        if (!source.is_array() || source.size() != 2 || !source[0].is_number_unsigned() ||
            !source[1].is_number_unsigned()) {
            return {};
        }
        recorded.sources.push_back({source[0].get<std::uint16_t>(), source[1].get<std::uint32_t>()});
    }
    return recorded;
}

std::vector<Json> input_messages(const std::string& host, const std::vector<InputFile>& files) {
    std::vector<Json> messages;
    for (std::size_t index = 0; index < files.size(); ++index) {
        if (index % files_in_a_message == 0) {
            messages.push_back({{"type", "inputs"}, {"host", host}, {"files", Json::array()}});
        }
        Json told = Json::array({files[index].source});
        for (const auto number : told_numbers) {
            told.push_back(files[index].*number);
        }
        messages.back()["files"].push_back(std::move(told));
    }
    return messages;
}

bool take_inputs(const Plan& plan, std::uint32_t node, const Json& message, Inputs& inputs) {
    const std::optional<std::string> host = text_in(message, "host");
    const auto files = message.find("files");
    if (!host || host->empty() || files == message.end() || !files->is_array()) {
        return false;
    }
    for (const Json& told : *files) {
        const bool numbers = told.is_array() && told.size() == std::size(told_numbers) + 1 &&
                             std::ranges::all_of(told, [](const Json& each) { return each.is_number_unsigned(); });
        const auto found = std::ranges::find_if(plan.protocol.sources, [&](const protocol::SourceSpec& source) {
            return numbers && told[0] == source.id && source.ru == Peer{node};
        });
        const auto index = static_cast<std::size_t>(found - plan.protocol.sources.begin());
        if (index >= inputs.files.size()) {
            return false;
        }
        InputFile& file = inputs.files[index];
        file.host = one_line(*host).substr(0, max_host_bytes);
        for (std::size_t number = 0; number < std::size(told_numbers); ++number) {
            file.*told_numbers[number] = told[number + 1].get<std::uint64_t>();
        }
    }
    return true;
}

}  // namespace incast::runtime
