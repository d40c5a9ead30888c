#include "runtime/sinks/mep_packer.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "wire/mep.h"

namespace incast::sinks {

Result<MepPacker> MepPacker::make(const protocol::Config& config, Missing missing) {
    std::vector<std::uint16_t> ids;
    std::ranges::transform(config.sources, std::back_inserter(ids), &protocol::SourceSpec::id);
    std::ranges::sort(ids);
    if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end()) {
        return Error{fmt::format("source id {} occurs twice, a MEP needs distinct ones", *twice)};
    }
    return MepPacker(config, missing);
}

MepPacker::MepPacker(const protocol::Config& config, Missing missing)
    : missing_(missing),
      checksum_(config.checksum),
      by_id_(config.sources.size()),
      own_(config.sources.size()),
      header_(wire::mep_header_bytes(static_cast<std::uint32_t>(config.sources.size()))),
      mfps_(config.sources.size()),
      segments_(wire::mep_max_segments(config.sources.size())) {
    std::ranges::transform(config.sources, std::back_inserter(ids_), &protocol::SourceSpec::id);
    std::iota(by_id_.begin(), by_id_.end(), 0U);
    std::ranges::sort(by_id_, {}, [this](std::uint32_t source) { return ids_[source]; });
}

Result<Bytes> MepPacker::mfp_of(const protocol::BuiltMep& mep, std::uint32_t source) {
    const protocol::BuiltSource& built = mep.sources[source];
    wire::SourceFlag flag = built.flag;
    const auto say = [&](wire::SourceFlag said) {
        flags_ += fmt::format("{}\"{}\": \"{}\"", flags_.empty() ? "" : ", ", ids_[source], wire::to_string(said));
    };
    if (!wire::is_missing(flag) && flag != wire::SourceFlag::bad_checksum) {
        const Result<wire::MfpView> mfp = wire::MfpView::parse(built.body);
        const auto note = [&](const std::string& why) {
            wrong_.push_back(fmt::format("MEP {} source {}: {}", mep.mep, ids_[source], why));
        };
        if (!mfp) {
            note(mfp.error().message);
            flag = wire::SourceFlag::bad_checksum;
        } else if (mfp->header().source != ids_[source] || mfp->header().first_event != mep.first_event ||
                   mfp->size() != mep.n_events) {
            note(fmt::format("holds events {} + {} of source {}, expected {} + {}", mfp->header().first_event,
                             mfp->size(), mfp->header().source, mep.first_event, mep.n_events));
            flag = wire::SourceFlag::desync;
        } else {
            // A manifest says what its bytes say.
            if (const wire::SourceFlag said = mfp->flag(); wire::is_defect(said)) {
                say(said);
                if (missing_ == Missing::lhcb) {
                    std::vector<std::byte>& own = own_[source];
                    own.assign(mfp->bytes().begin(), mfp->bytes().end());
                    wire::missing_to_error_banks(own);
                    return Bytes(own);
                }
            }
            if (built.head != nullptr && is_checked(checksum_, mep.mep)) {
                checksums_ += fmt::format("{}\"{}\": \"{:08x}\"", checksums_.empty() ? "" : ", ", ids_[source],
                                          built.head->checksum);
            }
            return mfp->bytes();
        }
    }
    std::vector<std::byte>& phantom = own_[source];
    phantom.resize(wire::phantom_bytes(mep.n_events));
    if (!wire::write_phantom(phantom, mep.first_event, mep.n_events, ids_[source], flag)) {
        return Error{fmt::format("MEP {} source {}: no phantom of {} events", mep.mep, ids_[source], mep.n_events)};
    }
    if (missing_ == Missing::lhcb) {
        wire::missing_to_error_banks(phantom);
    }
    say(flag);
    return Bytes(phantom);
}

Result<MepPacker::Packed> MepPacker::pack(const protocol::BuiltMep& mep) {
    flags_.clear();
    checksums_.clear();
    wrong_.clear();
    for (std::size_t index = 0; index < by_id_.size(); ++index) {
        const Result<Bytes> mfp = mfp_of(mep, by_id_[index]);
        if (!mfp) {
            return mfp.error();
        }
        mfps_[index] = *mfp;
    }
    const Result<wire::GatheredMep> gathered = wire::gather_mep(mfps_, header_, segments_);
    if (!gathered) {
        return Error{fmt::format("MEP {}: {}", mep.mep, gathered.error().message)};
    }
    return Packed{std::span(segments_).first(gathered->n_segments), gathered->packet_bytes};
}

}  // namespace incast::sinks
