// What the generator must have sent: planned again, then compared.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "runtime/sinks/verify_sink.h"
#include "runtime/sources/mfp_plan.h"
#include "runtime/sources/ring_source.h"

namespace incast::sinks {

namespace {

using sources::MfpPlan;
using sources::PlannedMfp;

class GeneratedExpectation final : public Expectation {
public:
    GeneratedExpectation(MfpPlan plan, std::size_t sources, bool may_close)
        : may_close_(may_close),
          plan_(std::move(plan)),
          sizes_(plan_.packing()),
          usual_heads_(plan_.same_sizes() ? sources : 0) {}

    std::string check(protocol::MepId mep, std::uint32_t source, const protocol::BuiltSource& built,
                      bool lines) override {
        if (std::string wrong = check_numbers(mep, *built.head); !wrong.empty()) {
            return wrong;
        }
        if (!lines && source < usual_heads_.size() && is_as_usual(source, built)) {
            return {};
        }
        const PlannedMfp planned = plan_.mfp(source, mep, built.head->first_event, built.head->n_events, sizes_);
        std::string wrong = check_head(*built.head, built.flag, planned);
        if (wrong.empty() && !built.body.empty()) {
            wrong = check_body(source, planned, built.body, lines);
        }
        if (wrong.empty() && source < usual_heads_.size() && planned.n_events == plan_.packing()) {
            usual_heads_[source] = {planned.n_events, built.head->body_bytes, built.head->goodput_bytes, planned.flag};
            if (!built.body.empty()) {
                const std::size_t prefix = wire::mfp_prefix_bytes(planned.n_events, planned.size.wide);
                usual_prefixes_.resize(usual_heads_.size());
                usual_prefixes_[source].assign(built.body.begin(),
                                               built.body.begin() + static_cast<std::ptrdiff_t>(prefix));
            }
        }
        return wrong;
    }

private:
    /// Of the last MFP of a source that was found right.
    struct UsualHead {
        std::uint32_t n_events = 0;  // 0: there was none
        std::uint32_t body_bytes = 0;
        std::uint32_t goodput_bytes = 0;
        wire::SourceFlag flag = wire::SourceFlag::ok;
    };

    /// Which events a MEP has. Closed early (EB-C8), it has fewer than others, and those behind it begin earlier; what
    /// all RUs were told only the event manager knows, and whether they agree the sink sees.
    [[nodiscard]] std::string check_numbers(protocol::MepId mep, const wire::Head& head) const {
        const std::uint64_t latest = plan_.first_event(mep);
        const std::uint64_t total = plan_.total_events();
        const std::uint64_t first = may_close_ ? head.first_event : latest;
        const std::uint32_t most = plan_.events_from(first);
        const std::uint32_t least = may_close_ ? 1 : most;
        if (total != 0 && first >= total) {
            return fmt::format("the run has only {} events", total);
        }
        if (head.first_event < (may_close_ ? mep : latest) || head.first_event > latest || head.n_events < least ||
            head.n_events > most) {
            return fmt::format("events {} + {}, expected {} + {}{}", head.first_event, head.n_events, latest,
                               plan_.packing(), may_close_ ? ", or earlier and fewer" : "");
        }
        return {};
    }

    /// What is checked below, for an MFP that may differ from the last one in its event ids alone: the same fields and
    /// bytes, in a fraction of the time.
    [[nodiscard]] bool is_as_usual(std::uint32_t source, const protocol::BuiltSource& built) const {
        const UsualHead& usual = usual_heads_[source];
        const wire::Head& head = *built.head;
        const std::uint64_t first_event = head.first_event;
        if (usual.n_events == 0 || head.n_events != usual.n_events || head.body_bytes != usual.body_bytes ||
            head.goodput_bytes != usual.goodput_bytes || built.flag != usual.flag) {
            return false;
        }
        if (built.body.empty()) {
            return true;  // phantom: VerifySink has seen to it that it is meant to be
        }
        constexpr std::size_t ids = sources::mfp_first_event_offset;
        constexpr std::size_t behind = ids + sizeof(std::uint64_t);
        if (usual_prefixes_.empty()) {
            return false;
        }
        const std::vector<std::byte>& prefix = usual_prefixes_[source];
        return prefix.size() > behind && built.body.size() >= prefix.size() && built.body.size() == head.body_bytes &&
               wire::load<std::uint64_t>(built.body, ids) == first_event &&
               std::memcmp(built.body.data(), prefix.data(), ids) == 0 &&
               std::memcmp(built.body.data() + behind, prefix.data() + behind, prefix.size() - behind) == 0;
    }

    static std::string check_head(const wire::Head& head, wire::SourceFlag flag, const PlannedMfp& planned) {
        if (head.first_event != planned.first_event || head.n_events != planned.n_events) {
            return fmt::format("events {} + {}, expected {} + {}", head.first_event, head.n_events, planned.first_event,
                               planned.n_events);
        }
        if (head.body_bytes != planned.size.packet_bytes || head.goodput_bytes != planned.size.payload_bytes) {
            return fmt::format("{} bytes with {} of fragments, expected {} with {}", head.body_bytes,
                               head.goodput_bytes, planned.size.packet_bytes, planned.size.payload_bytes);
        }
        if (flag != planned.flag) {
            return fmt::format("flagged {}, expected {}", wire::to_string(flag), wire::to_string(planned.flag));
        }
        return {};
    }

    std::string check_body(std::uint32_t source, const PlannedMfp& planned, Bytes body, bool lines) const {
        const Result<wire::MfpView> parsed = wire::MfpView::parse(body);
        if (!parsed) {
            return parsed.error().message;
        }
        const wire::MfpHeader& header = parsed->header();
        if (header.source != plan_.source_id(source)) {
            return fmt::format("holds the MFP of source {}", header.source);
        }
        if (header.first_event != planned.first_event || header.n_fragments != planned.n_events) {
            return fmt::format("its MFP has events {} + {}, expected {} + {}", header.first_event, header.n_fragments,
                               planned.first_event, planned.n_events);
        }
        if (header.packet_bytes != body.size() || header.wide != planned.size.wide ||
            header.align_log2 != sources::generated_align_log2 ||
            header.fragment_version != sources::generated_fragment_version) {
            return fmt::format("MFP of {} bytes, align 2^{}, version {}, {}; expected {}, 2^{}, {}, {}",
                               header.packet_bytes, header.align_log2, header.fragment_version,
                               header.wide ? "wide" : "not wide", body.size(), sources::generated_align_log2,
                               sources::generated_fragment_version, planned.size.wide ? "wide" : "not wide");
        }
        for (std::uint32_t index = 0; index < planned.n_events; ++index) {
            const std::uint8_t type =
                index < planned.kept ? sources::generated_fragment_type : wire::flag_type(wire::SourceFlag::truncated);
            if (parsed->fragment_bytes(index) != sizes_[index] || parsed->type(index) != type) {
                return fmt::format("event {}: {} bytes of type {}, expected {} of type {}", planned.first_event + index,
                                   parsed->fragment_bytes(index), parsed->type(index), sizes_[index], type);
            }
        }
        return lines ? check_lines(source, planned, *parsed) : std::string();
    }

    std::string check_lines(std::uint32_t source, const PlannedMfp& planned, const wire::MfpView& mfp) const {
        // Padding, of the tables and of fragments, is zero; with it every byte of the packet is accounted for.
        const std::size_t header_bytes = planned.size.wide ? wire::mfp_wide_header_bytes : wire::mfp_header_bytes;
        const std::size_t types_end = header_bytes + planned.n_events;
        const std::size_t sizes_begin = header_bytes + wire::round_up(planned.n_events, 4);
        const std::size_t sizes_end = sizes_begin + std::size_t{planned.size.wide ? 4U : 2U} * planned.n_events;
        std::uint64_t offset = wire::mfp_prefix_bytes(planned.n_events, planned.size.wide);
        if (!is_zero(mfp.bytes(), types_end, sizes_begin) || !is_zero(mfp.bytes(), sizes_end, offset)) {
            return "padding of the tables is not zero";
        }
        for (std::uint32_t index = 0; index < planned.kept; ++index) {
            const Bytes fragment = mfp.bytes().subspan(offset, sizes_[index]);
            const sources::ContentKey key = plan_.content(source, planned, index);
            if (const auto at = sources::find_difference(key, fragment)) {
                return fmt::format("event {} byte {} of {}: {:#04x}, expected {:#04x}", planned.first_event + index,
                                   *at, fragment.size(), std::to_integer<unsigned>(fragment[*at]),
                                   std::to_integer<unsigned>(sources::content_byte(key, *at)));
            }
            const std::uint64_t next = offset + wire::round_up(sizes_[index], 1U << sources::generated_align_log2);
            if (!is_zero(mfp.bytes(), offset + sizes_[index], next)) {
                return fmt::format("event {}: padding behind the fragment is not zero", planned.first_event + index);
            }
            offset = next;
        }
        return {};
    }

    static bool is_zero(Bytes bytes, std::size_t begin, std::size_t end) {
        return std::ranges::all_of(bytes.subspan(begin, end - begin),
                                   [](std::byte byte) { return byte == std::byte{0}; });
    }

    bool may_close_;
    MfpPlan plan_;
    std::vector<std::uint32_t> sizes_;
    // By source, where sizes are always the same; of bodies header and tables, unless all are phantom.
    std::vector<UsualHead> usual_heads_;
    std::vector<std::vector<std::byte>> usual_prefixes_;
};

}  // namespace

Result<std::unique_ptr<Expectation>> expect_generated(const sources::GeneratorOptions& options,
                                                      const protocol::Config& config) {
    auto plan = MfpPlan::make(config, options);
    if (!plan) {
        return plan.error();
    }
    return std::unique_ptr<Expectation>(std::make_unique<GeneratedExpectation>(
        std::move(plan).value(), config.sources.size(), config.max_wait > 0 && options.triggers.rate_hz > 0));
}

}  // namespace incast::sinks
