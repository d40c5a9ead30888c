#include "ingest/window.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/bytes.h"

namespace incast::ingest {

namespace {

constexpr std::uint8_t align_log2 = 3;
constexpr std::uint64_t packets_of_a_gap = 16;  // lost in a row, of a board that is out of step

}  // namespace

void add(Counts& to, const Counts& more) {
    to.packets += more.packets;
    to.taken_events += more.taken_events;
    to.duplicate_events += more.duplicate_events;
    to.late_events += more.late_events;
    to.stray_events += more.stray_events;
    to.lost_events += more.lost_events;
    to.truncated_events += more.truncated_events;
    to.restarts += more.restarts;
    to.jumps += more.jumps;
    to.size_changes += more.size_changes;
}

Window::Window(const WindowOptions& options, std::span<std::byte> memory)
    : options_(options),
      memory_(memory),
      open_(options.open_meps),
      entries_(std::size_t{options.open_meps} * options.packing),
      scratch_(options.cap_bytes) {}

void Window::start(std::uint64_t first_mep) {
    std::ranges::fill(open_, Open{});
    next_ = known_below_ = first_mep;
    in_step_ = true;
    was_heard_ = false;
    highest_ = believed_ = 0;
    run_length_ = packet_events_ = other_events_ = 0;
}

std::uint32_t Window::events_of(std::uint64_t mep) const {
    if (options_.total_events == 0) return options_.packing;
    const std::uint64_t first = mep * options_.packing;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(options_.packing, options_.total_events - std::min(options_.total_events, first)));
}

/// The last of the events before `behind` is in a MEP that is not open yet.
bool Window::is_ahead(std::uint64_t behind) const {
    return (behind - 1) / options_.packing >= next_ + options_.open_meps;
}

/// It goes on where the packet before it ended, as so many before it did.
bool Window::follows(std::uint64_t first, std::uint32_t events) {
    if (run_length_ == 0 || first != run_next_) {
        run_first_ = first;
        run_length_ = 0;
    }
    run_next_ = first + events;
    return ++run_length_ >= believed_after;
}

/// A packet behind others: with it the board has counted from 0 again.
bool Window::restarts(std::uint64_t first, std::uint32_t events) {
    const bool in_order = follows(first, events);
    return in_order && run_first_ < std::uint64_t{believed_after} * events;
}

Window::Fit Window::fit_ahead(std::uint64_t first, std::uint32_t events) {
    const std::uint64_t behind = first + events;
    const std::uint64_t mep = (behind - 1) / options_.packing;
    const std::uint64_t near = std::max(next_, highest_ / options_.packing) + 4 * std::uint64_t{options_.open_meps};
    if (mep >= near && first != believed_) {  // a gap like this one, or just one wrong id
        if (!follows(first, events)) return Fit::stray;
        run_length_ = 0;
        if (mep - next_ > most_jump_meps) {
            in_step_ = false;
            highest_ = behind;
            return Fit::stray;
        }
        ++counts_.jumps;
        believed_ = first;
    }
    wants_next_ = mep - options_.open_meps + 1;
    return Fit::ahead;
}

Window::Fit Window::fit_out_of_step(std::uint64_t first, std::uint32_t events) {
    const std::uint64_t behind = first + events;
    if (first >= highest_ && first - highest_ <= packets_of_a_gap * events) {  // goes on by itself
        highest_ = behind;
        run_length_ = 0;
        return Fit::stray;
    }
    if (first < highest_ && first / options_.packing < next_) {
        if (restarts(first, events)) {
            ++counts_.restarts;
            run_length_ = 0;
            highest_ = behind;
        }
        return Fit::stray;
    }
    if (!follows(first, events)) return Fit::stray;
    if (first / options_.packing < next_ || is_ahead(behind)) {
        if (first > highest_) highest_ = behind;
        return Fit::stray;
    }
    in_step_ = true;
    run_length_ = 0;
    highest_ = behind;
    return Fit::fits;
}

Window::Fit Window::fit(std::uint64_t first, std::uint32_t events) {
    const std::uint64_t behind = first + events;
    if ((behind - 1) / options_.packing - first / options_.packing >= options_.open_meps) return Fit::stray;
    if (!in_step_) return fit_out_of_step(first, events);
    if (first >= highest_ || !was_heard_) {
        if (is_ahead(behind)) return fit_ahead(first, events);
        run_length_ = 0;
        highest_ = std::max(highest_, behind);
        return Fit::fits;
    }
    if (is_ahead(behind)) return Fit::stray;  // cannot be: what is ahead does not move `highest_`
    if (restarts(first, events)) {
        ++counts_.restarts;
        in_step_ = false;
        run_length_ = 0;
        highest_ = behind;
        return Fit::stray;
    }
    return Fit::fits;
}

/// The last packet of a run may be short: it is another size from the second one on.
void Window::note_size(std::uint32_t events) {
    if (packet_events_ == 0) packet_events_ = events;
    if (events == packet_events_) {
        other_events_ = 0;
    } else if (events == other_events_) {
        packet_events_ = events;
        other_events_ = 0;
        ++counts_.size_changes;
    } else {
        other_events_ = events;
    }
}

Window::Answer Window::take(const wire::MfpView& packet) {
    const std::uint64_t first = packet.header().first_event;
    const std::uint32_t events = packet.size();
    const Fit found = fit(first, events);
    if (found == Fit::ahead) return Answer::ahead;
    ++counts_.packets;
    was_heard_ = true;
    note_size(events);
    if (found == Fit::stray) {
        counts_.stray_events += events;
        return Answer::used;
    }
    const std::uint64_t mep = first / options_.packing;
    if (is_whole_mep(first, events) && take_whole(packet, mep)) {
        known_below_ = std::max(known_below_, mep + 1);
        return Answer::used;
    }
    bool any = false;
    for (const wire::Fragment& fragment : packet) {
        any = take_fragment(fragment) || any;
    }
    if (any) {
        run_length_ = 0;  // something new of a board is no sign that it counts anew
        const std::uint64_t behind = (first + events - 1) / options_.packing + 1;
        known_below_ = std::max(known_below_, behind);
    }
    return Answer::used;
}

/// All of a MEP of which nothing has come.
bool Window::is_whole_mep(std::uint64_t first, std::uint32_t events) const {
    const std::uint64_t mep = first / options_.packing;
    return first % options_.packing == 0 && mep >= next_ && events == events_of(mep) && open_of(mep).events == 0;
}

/// What is most of the time a whole MEP goes to its place before it is looked into; there it is alone.
Result<Window::Answer> Window::take_shared(Bytes packet) {
    std::array<std::byte, wire::mfp_wide_header_bytes> head{};
    std::memcpy(head.data(), packet.data(), std::min(packet.size(), head.size()));
    const Result<wire::MfpHeader> header = wire::peek_mfp(Bytes(head).first(std::min(packet.size(), head.size())));
    if (!header) return header.error();
    if (header->source != options_.source) {
        return Error{"it is of source " + std::to_string(header->source)};
    }
    if (header->packet_bytes != packet.size()) {
        return Error{"an MFP of " + std::to_string(header->packet_bytes) + " bytes in " +
                     std::to_string(packet.size())};
    }
    const std::uint64_t behind = header->first_event + header->n_fragments;
    const bool to_place = packet.size() <= options_.cap_bytes && !is_ahead(behind) &&
                          is_whole_mep(header->first_event, header->n_fragments);
    if (!to_place) copy_.resize(std::max(copy_.size(), packet.size()));
    const std::span<std::byte> copy =
        (to_place ? place_of(header->first_event / options_.packing) : std::span(copy_)).first(packet.size());
    std::memcpy(copy.data(), packet.data(), packet.size());
    const Result<wire::MfpView> view = wire::MfpView::parse(copy);
    if (!view) return view.error();
    if (view->header().source != options_.source || view->header().first_event != header->first_event ||
        view->size() != header->n_fragments || view->bytes().size() != packet.size()) {
        return Error{"it changed while it was read"};
    }
    return take(*view);
}

bool Window::take_whole(const wire::MfpView& packet, std::uint64_t mep) {
    const Bytes bytes = packet.bytes();
    if (bytes.size() > options_.cap_bytes) return false;
    std::byte* const place = place_of(mep).data();
    if (bytes.data() != place) std::memcpy(place, bytes.data(), bytes.size());
    Open& open = open_of(mep);
    open.events = packet.size();
    open.is_whole = true;
    open.made = {static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint32_t>(packet.payload_bytes()),
                 packet.flag()};
    counts_.taken_events += packet.size();
    return true;
}

/// Of a MEP that was made: the event had its fragment. What is too long ago was late.
bool Window::had(std::uint64_t mep, std::uint32_t index) const {
    if (mep + options_.places < next_ + options_.open_meps) return false;
    const Result<wire::MfpView> made = wire::MfpView::parse(place_of(mep));
    if (!made || index >= made->size() || made->header().first_event != mep * options_.packing) return false;
    const auto missing = made->fragment_bytes(index) > 0 ? std::nullopt : wire::flag_of_type(made->type(index));
    return missing != wire::SourceFlag::late && missing != wire::SourceFlag::desync;
}

/// True if it is new.
bool Window::take_fragment(const wire::Fragment& fragment) {
    const std::uint64_t mep = fragment.event / options_.packing;
    const auto index = static_cast<std::uint32_t>(fragment.event % options_.packing);
    if (options_.total_events != 0 && fragment.event >= options_.total_events) {
        ++counts_.stray_events;
        return false;
    }
    if (mep < next_) {
        ++(had(mep, index) ? counts_.duplicate_events : counts_.late_events);
        return false;
    }
    Open& open = open_of(mep);
    Entry* const entries = entries_of(mep);
    if (open.events == 0) {
        std::fill_n(entries, options_.packing, Entry{});
        open.used = static_cast<std::uint32_t>(wire::mfp_prefix_bytes(events_of(mep), false));
    }
    if (open.is_whole || entries[index].is_there) {
        ++counts_.duplicate_events;
        return false;
    }
    Entry& entry = entries[index];
    open.is_in_order = open.is_in_order && (open.events == 0 || index > open.last);
    open.last = index;
    ++open.events;
    ++counts_.taken_events;
    entry = {open.used, static_cast<std::uint32_t>(fragment.data.size()), fragment.type, true};
    const std::uint64_t padded = wire::round_up(entry.bytes, 1U << align_log2);
    if (entry.bytes > wire::mfp_max_fragment_bytes || open.used + padded > options_.cap_bytes) {
        entry.bytes = 0;
        entry.type = wire::flag_type(wire::SourceFlag::truncated);
        ++counts_.truncated_events;
        return true;
    }
    if (entry.bytes > 0 && wire::flag_of_type(entry.type)) {  // says that it is missing, and is there
        entry.bytes = 0;
        entry.type = wire::flag_type(wire::SourceFlag::bad_checksum);
        return true;
    }
    if (entry.bytes > 0) std::memcpy(place_of(mep).data() + open.used, fragment.data.data(), entry.bytes);
    open.used += static_cast<std::uint32_t>(padded);
    return true;
}

bool Window::is_complete(std::uint64_t mep) const {
    return open_[mep % options_.open_meps].events == events_of(mep);
}

/// Writes the tables before the fragments that came, and these anew if they came in another order.
Made Window::put_together(std::uint64_t mep, wire::SourceFlag missing) {
    const Open& open = open_of(mep);
    const Entry* const entries = entries_of(mep);
    const std::span<std::byte> place = place_of(mep);
    const std::span<std::byte> out = open.is_in_order ? place : std::span(scratch_);
    const std::uint32_t events = events_of(mep);
    wire::MfpHeader header;
    header.first_event = mep * options_.packing;
    header.n_fragments = events;
    header.source = options_.source;
    header.align_log2 = align_log2;
    wire::MfpWriter writer = wire::MfpWriter::begin(out, header).value();  // `cap_bytes` has room for the tables
    Made made;
    wire::SourceFlag first_missing = wire::SourceFlag::ok;
    for (std::uint32_t index = 0; index < events; ++index) {
        const Entry& entry = entries[index];
        const std::uint8_t type = entry.is_there ? entry.type : wire::flag_type(missing);
        const auto fragment = writer.reserve(type, entry.bytes);  // has room: all of it lay in a place of that size
        if (entry.bytes > 0 && fragment && !open.is_in_order) {
            std::memcpy(fragment->data(), place.data() + entry.offset, entry.bytes);
        }
        made.goodput_bytes += entry.bytes;
        if (const auto flag = wire::flag_of_type(type);
            flag && entry.bytes == 0 && first_missing == wire::SourceFlag::ok) {
            first_missing = *flag;
        }
        counts_.lost_events += entry.is_there ? 0 : 1;
    }
    made.bytes = static_cast<std::uint32_t>(writer.finish().value());
    if (!open.is_in_order) std::memcpy(place.data(), scratch_.data(), made.bytes);
    made.flag = first_missing != wire::SourceFlag::ok ? first_missing
                : made.goodput_bytes == 0             ? wire::SourceFlag::empty
                                                      : wire::SourceFlag::ok;
    return made;
}

Made Window::make(wire::SourceFlag missing) {
    const std::uint64_t mep = next_;
    const wire::SourceFlag why = in_step_ ? missing : wire::SourceFlag::desync;
    const std::uint32_t events = events_of(mep);
    Made made;
    if (open_of(mep).is_whole) {
        made = open_of(mep).made;
    } else if (open_of(mep).events > 0) {
        made = put_together(mep, why);
    } else {
        made.bytes = static_cast<std::uint32_t>(
            wire::write_phantom(place_of(mep), mep * options_.packing, events, options_.source, why).value());
        made.flag = why;
        counts_.lost_events += events;
    }
    open_of(mep) = {};
    ++next_;
    known_below_ = std::max(known_below_, next_);
    return made;
}

}  // namespace incast::ingest
