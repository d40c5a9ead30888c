// For tests of sinks: a run without network. Sources produce, and their MFPs are copied as a BU would find them in a
// slot.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/sources/source.h"
#include "support/fake_transport.h"

namespace incast::sinks {

/// A MEP that owns its bytes; change what you like, then build() it.
struct LooseMep {
    struct Part {
        wire::Head head;
        std::vector<std::byte> body;
        wire::SourceFlag flag = wire::SourceFlag::ok;
        bool missing = false;
    };
    std::vector<Part> parts;
    protocol::BuiltMep mep;
    std::vector<protocol::BuiltSource> built;

    void lose(std::uint32_t source, wire::SourceFlag flag = wire::SourceFlag::missing_dead) {
        parts[source].missing = true;
        parts[source].flag = flag;
    }
    const protocol::BuiltMep& build() {
        built.clear();
        mep.goodput_bytes = 0;
        mep.missing_sources = 0;
        mep.flagged_sources = 0;
        mep.trigger = time_never;
        mep.last_trigger = 0;
        for (Part& part : parts) {
            mep.flagged_sources += wire::is_defect(part.flag) ? 1 : 0;
            if (part.missing) {
                built.push_back({part.flag, nullptr, {}});
                ++mep.missing_sources;
            } else {
                built.push_back({part.flag, &part.head, part.body});
                mep.goodput_bytes += part.head.goodput_bytes;
                mep.first_event = part.head.first_event;
                mep.n_events = part.head.n_events;
                mep.trigger = std::min(mep.trigger, part.head.trigger);
                mep.last_trigger = std::max(mep.last_trigger, part.head.trigger);
            }
        }
        mep.sources = built;
        return mep;
    }
};

class BuiltRun {
public:
    BuiltRun(const protocol::Config& config, const sources::SourceOptions& options, bool phantom = false)
        : config_(config) {
        for (std::uint32_t first = 0; first < config.sources.size();) {
            std::uint32_t end = first;
            while (end < config.sources.size() && config.sources[end].ru == config.sources[first].ru) {
                ++end;
            }
            Ru ru{std::make_unique<sources::FakeTransport>(phantom), nullptr, end - first};
            auto source = sources::make_source(options);
            if (!source) {
                error_ = source.error().message;
                return;
            }
            ru.source = std::move(source).value();
            const auto attached = ru.source->attach(*ru.transport, config, first, end - first);
            if (!attached) {
                error_ = attached.error().message;
                return;
            }
            ru.source->start(1, 0, 0);
            rus_.push_back(std::move(ru));
            first = end;
        }
    }

    /// The next MEP, in order; nothing once the sources ended.
    std::optional<LooseMep> next(Time now = time_never - 1) {
        LooseMep loose;
        loose.mep.mep = next_;
        for (const Ru& ru : rus_) {
            if (!ru.source->produce(now, next_)) {
                return std::nullopt;
            }
            for (std::uint32_t index = 0; index < ru.sources; ++index) {
                const protocol::Piece& piece = ru.source->piece(next_, index);
                LooseMep::Part part;
                part.flag = part.head.flag = piece.flag;
                part.head.run = config_.run;
                part.head.mep = next_;
                part.head.source = static_cast<std::uint16_t>(loose.parts.size());
                part.head.body_bytes = piece.body.length;
                part.head.first_event = piece.first_event;
                part.head.n_events = piece.n_events;
                part.head.goodput_bytes = piece.goodput_bytes;
                part.head.trigger = piece.trigger;
                const Bytes body = ru.transport->local(piece.body);
                part.body.assign(body.begin(), body.end());
                loose.parts.push_back(std::move(part));
            }
            ru.source->release(next_ + 1);
        }
        ++next_;
        return loose;
    }

    [[nodiscard]] const std::string& error() const { return error_; }

private:
    struct Ru {
        std::unique_ptr<sources::FakeTransport> transport;
        std::unique_ptr<sources::RuntimeSource> source;
        std::uint32_t sources;
    };
    protocol::Config config_;
    std::vector<Ru> rus_;
    protocol::MepId next_ = 0;
    std::string error_;
};

}  // namespace incast::sinks
