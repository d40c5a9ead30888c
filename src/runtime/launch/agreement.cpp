#include "runtime/launch/agreement.h"

#include <algorithm>

#include <fmt/format.h>

namespace incast::runtime {
namespace {

constexpr std::size_t longest_program = 32;

std::optional<base::Versions> range(std::optional<std::uint64_t> oldest, std::optional<std::uint64_t> newest) {
    if (!oldest || !newest || *oldest > *newest || *newest > UINT32_MAX) {
        return std::nullopt;
    }
    return base::Versions{static_cast<std::uint32_t>(*oldest), static_cast<std::uint32_t>(*newest)};
}

}  // namespace

std::string wrong_rendezvous_version(const Json& hello) {
    const std::optional<std::uint64_t> newest = number_in(hello, "protocol");
    const std::optional<base::Versions> theirs =
        range(hello.contains("oldest_protocol") ? number_in(hello, "oldest_protocol") : newest, newest);
    if (theirs && base::common(*theirs, rendezvous_versions)) {
        return "";
    }
    return base::no_common_version("the rendezvous", theirs, program_of(hello), rendezvous_versions);
}

std::string program_of(const Json& hello) {
    const std::string program = text_in(hello, "version").value_or("");
    const bool is_one = program.size() <= longest_program && std::ranges::all_of(program, [](char letter) {
                            return (letter >= '0' && letter <= '9') || letter == '.';
                        });
    return is_one ? program : "";
}

std::optional<base::Versions> control_versions_of(const Json& hello) {
    const auto found = hello.find("control");
    if (found == hello.end()) {
        return base::Versions{1, 1};
    }
    if (!found->is_array() || found->size() != 2 || !(*found)[0].is_number_unsigned() ||
        !(*found)[1].is_number_unsigned()) {
        return std::nullopt;
    }
    return range((*found)[0].get<std::uint64_t>(), (*found)[1].get<std::uint64_t>());
}

Json hello_with_versions(const std::string& program) {
    return {{"type", "hello"},
            {"magic", rendezvous_magic},
            {"protocol", rendezvous_versions.newest},
            {"oldest_protocol", rendezvous_versions.oldest},
            {"control", {wire::control_versions.oldest, wire::control_versions.newest}},
            {"version", program}};
}

std::string Agreement::take(std::optional<base::Versions> theirs, const std::string& program) {
    const std::optional<base::Versions> both = theirs ? base::common(*theirs, versions_) : std::nullopt;
    if (!both) {
        return base::no_common_version("control messages", theirs, program, versions_);
    }
    versions_ = *both;
    return "";
}

std::uint32_t Agreement::decide() {
    versions_.oldest = versions_.newest;
    return versions_.newest;
}

Result<Ok> take_decision(const Json& peers, std::uint8_t& version, base::Versions ours) {
    const std::optional<std::uint64_t> decided =
        peers.contains("control") ? number_in(peers, "control") : std::optional<std::uint64_t>(1);  // of 0.1.0
    if (!decided || *decided > UINT8_MAX || !ours.contains(static_cast<std::uint32_t>(*decided))) {
        return Error{fmt::format("the run speaks version {} of control messages, this program {} to {}",
                                 decided ? std::to_string(*decided) : "unknown", ours.oldest, ours.newest)};
    }
    version = static_cast<std::uint8_t>(*decided);
    return Ok{};
}

}  // namespace incast::runtime
