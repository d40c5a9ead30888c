// What a replay must have sent: the recording, opened again by whoever checks.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "runtime/sinks/verify_sink.h"
#include "runtime/sources/replay.h"
#include "wire/mfp.h"

namespace incast::sinks {

namespace {

class ReplayedExpectation final : public Expectation {
public:
    explicit ReplayedExpectation(sources::ReplayPlan plan) : plan_(std::move(plan)) {}

    std::string check(protocol::MepId mep, std::uint32_t source, const protocol::BuiltSource& built,
                      bool lines) override {
        const std::uint32_t n_events = plan_.n_events(mep);
        if (n_events == 0) {
            return fmt::format("the recording has only {} MEPs", plan_.total_meps());
        }
        const wire::Head& head = *built.head;
        const std::uint64_t first_event = plan_.first_event(mep);
        if (head.first_event != first_event || head.n_events != n_events) {
            return fmt::format("events {} + {}, expected {} + {}", head.first_event, head.n_events, first_event,
                               n_events);
        }
        const sources::ReplayPlan::Replayed expected = plan_.mfp(source, mep);
        if (head.body_bytes != expected.packet.size() || head.goodput_bytes != expected.goodput_bytes) {
            return fmt::format("{} bytes with {} of fragments, expected {} with {}", head.body_bytes,
                               head.goodput_bytes, expected.packet.size(), expected.goodput_bytes);
        }
        if (built.flag != expected.flag) {
            return fmt::format("flagged {}, expected {}", wire::to_string(built.flag), wire::to_string(expected.flag));
        }
        return built.body.empty() ? std::string() : check_body(built.body, expected.packet, first_event, lines);
    }

private:
    static std::string check_body(Bytes body, Bytes packet, std::uint64_t first_event, bool lines) {
        const Result<wire::MfpView> parsed = wire::MfpView::parse(body);
        if (!parsed) {
            return parsed.error().message;
        }
        if (parsed->header().first_event != first_event) {
            return fmt::format("its MFP begins with event {}, expected {}", parsed->header().first_event, first_event);
        }
        // Structure ends where fragments begin; in between only the event id differs from the recording, and that is
        // checked.
        constexpr std::size_t id_begin = sources::mfp_first_event_offset;
        constexpr std::size_t id_end = id_begin + sizeof(std::uint64_t);
        const std::size_t prefix = wire::mfp_prefix_bytes(parsed->size(), parsed->header().wide);
        const std::size_t end = lines ? body.size() : std::min<std::size_t>(prefix, body.size());
        for (const auto& [from, to] : {std::pair<std::size_t, std::size_t>{0, id_begin}, {id_end, end}}) {
            if (std::memcmp(body.data() + from, packet.data() + from, to - from) != 0) {
                const auto found = std::mismatch(body.data() + from, body.data() + to, packet.data() + from).first;
                const auto at = static_cast<std::size_t>(found - body.data());
                return fmt::format("byte {} of the MFP: {:#04x}, recorded {:#04x}", at,
                                   std::to_integer<unsigned>(body[at]), std::to_integer<unsigned>(packet[at]));
            }
        }
        return {};
    }

    sources::ReplayPlan plan_;
};

}  // namespace

Result<std::unique_ptr<Expectation>> expect_replayed(const sources::ReplayOptions& options,
                                                     const protocol::Config& config) {
    auto plan = sources::ReplayPlan::make(config, options);
    if (!plan) {
        return plan.error();
    }
    return std::unique_ptr<Expectation>(std::make_unique<ReplayedExpectation>(std::move(plan).value()));
}

}  // namespace incast::sinks
