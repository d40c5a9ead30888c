// Control messages between event manager (EM), readout units (RU) and builder units (BU), and the head of every write.
//
// Layout: little-endian, packed by construction (every field naturally aligned), described in docs/formats.md. One
// message is a ControlHeader, then one Body of its kind, then `count` entries of its kind; its size is exactly that, at
// most max_message_bytes. Every message carries (run, view, incarnation of the sender): EB-F6. Counters are
// absolute and cumulative: EB-C1.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <incast/transport.h>

#include "base/versions.h"
#include "wire/source_flag.h"

namespace incast::wire {

static_assert(std::endian::native == std::endian::little, "control messages are little-endian structures in memory");

using MepId = std::uint64_t;

inline constexpr std::uint16_t control_magic = 0x1CA5;
/// That this program speaks. All nodes of a run speak one, which is chosen where they meet (runtime/launch).
inline constexpr base::Versions control_versions{1, 1};
inline constexpr std::uint8_t control_version = control_versions.newest;

enum class ControlKind : std::uint8_t {
    hello = 1,       // node -> EM: who I am
    beat,            // node -> EM, EM -> node: alive
    connected,       // RU or BU -> EM: data connection to that peer is up
    peer_lost,       // RU or BU -> EM: data connection to that peer was lost
    view,            // EM -> all: who is in, who is out
    available,       // RU -> EM: MEPs below this are in my memory
    announce,        // EM -> RU: assignments (push) and the release watermark
    abort,           // EM -> RU (push), BU -> RU (pull): that attempt is void
    abort_ack,       // RU -> BU: nothing more of that attempt will be written
    grant,           // BU -> EM, BU -> RU (source-credits): credits, each bound to a slot
    assign,          // EM -> BU: a MEP for a credit
    commit_request,  // BU -> EM: complete, or complete but for confirmed losses
    commit_verdict,  // EM -> BU: deliver it, or drop it
    committed,       // BU -> EM: the sink has it
    late,            // BU -> EM: deadline passed; which RUs are missing
    region,          // BU -> RU: where to write
    request,         // BU -> RU (pull): write this MEP into that slot
    placed,          // BU -> RU: how many of your contributions are placed
    end,             // EM -> all: every admitted MEP is committed
    source_region,   // RU -> BU (pull-read): where to read
    offer,           // RU -> BU (pull-read): a requested contribution, and where it lies
    phase,           // EM -> RU: a phase of the schedule begins
    phase_done,      // RU -> EM: what this RU sent in that phase is placed
    clock_ask,       // RU -> EM: what is the time?
    clock_answer,    // EM -> RU: this
    open,            // RU -> EM: a MEP has waited too long for the rest of its events; how many it has
    close,           // EM -> RU: that MEP ends with so many, for all RUs alike
};

struct ControlHeader {
    std::uint16_t magic = control_magic;
    std::uint8_t version = control_version;
    ControlKind kind{};
    std::uint32_t view = 0;
    std::uint64_t run = 0;
    std::uint32_t incarnation = 0;
    std::uint32_t count = 0;
};
static_assert(sizeof(ControlHeader) == 24);

struct NoBody {};
struct NoEntry {};

struct HelloBody {
    std::uint64_t config_hash = 0;  // of everything both sides must agree on
    std::uint64_t total_meps = 0;   // what this RU's sources can give; 0 = no end
    std::uint32_t roles = 0;        // protocol::Role bits
    std::uint32_t unused = 0;
};
struct PeerEntry {
    std::uint32_t peer = 0;
    std::uint32_t incarnation = 0;
};
enum class Change : std::uint32_t { up = 1, dead = 2, unreachable = 3, distrusted = 4 };
struct ViewEntry {
    std::uint32_t node = 0;
    std::uint32_t incarnation = 0;
    std::uint32_t roles = 0;
    Change change{};
    std::uint64_t from_mep = 0;    // up: first MEP that node takes part in
    std::uint64_t from_event = 0;  // up: its first event, where the EM counts events (Config::packing)
};
struct AvailableBody {
    MepId below = 0;
};
struct AnnounceBody {
    MepId released_below = 0;  // EB-F1: the RU may forget MEPs below
    MepId base = 0;            // entry k is MEP base + k
    std::uint32_t attempt = 0;
    std::uint32_t unused = 0;
};
struct AnnounceEntry {
    std::uint16_t bu = 0;
    std::uint16_t slot = 0;
    std::uint32_t credit = 0;
};
/// One attempt of one MEP: in abort, assign, request, commit_request, commit_verdict, committed.
struct AttemptEntry {
    MepId mep = 0;
    std::uint32_t credit = 0;
    std::uint16_t bu = 0;
    std::uint16_t slot = 0;
    std::uint16_t attempt = 0;
    std::uint16_t flags = 0;  // AttemptFlag bits
    std::uint32_t value = 0;  // commit_request, committed: flagged_value(); assign: attempts at it that were late
};
/// Sources of a MEP that are not there, and those that are there with a defect: 65535 together at most.
[[nodiscard]] constexpr std::uint32_t flagged_value(std::uint32_t missing, std::uint32_t defective) {
    return missing | defective << 16U;
}
[[nodiscard]] constexpr std::uint32_t missing_sources(const AttemptEntry& entry) {
    return entry.value & 0xffffU;
}
[[nodiscard]] constexpr std::uint32_t defective_sources(const AttemptEntry& entry) {
    return entry.value >> 16U;
}
enum AttemptFlag : std::uint16_t {
    attempt_granted = 1,      // commit_verdict: the sink may take it
    attempt_redelivered = 2,  // commit_verdict: an earlier attempt may have reached a sink
    attempt_rejected = 4,     // commit_request: a filter rejected it, no sink will get it
};
/// In announce and assign: the EM does not know the slot of that credit, the BU tells it to its RUs (source-credits).
inline constexpr std::uint16_t unknown_slot = 0xffff;
struct CreditEntry {
    std::uint32_t credit = 0;  // consecutive from 1 per BU incarnation
    std::uint16_t slot = 0;
    std::uint16_t unused = 0;
};
struct LateBody {
    AttemptEntry attempt;
};
struct NodeEntry {
    std::uint32_t node = 0;
};
/// A part of the key of a region: as many follow the body as the key needs, the last one filled up with zeros.
struct KeyPart {
    std::byte bytes[96] = {};
};
/// One of the regions in which a BU keeps what that RU writes; they are told in order (protocol/config.h, SlotLayout).
struct RegionBody {
    std::uint64_t slot_bytes = 0;
    std::uint32_t slots = 0;
    std::uint16_t index = 0;
    std::uint16_t key_size = 0;
};
struct PlacedBody {
    std::uint64_t contributions = 0;  // cumulative over this connection
};
struct EndBody {
    MepId total = 0;
};
struct PhaseBody {
    std::uint64_t phase = 0;    // counts from 1 over the whole run
    std::uint64_t expired = 0;  // of the phases before, those that ended without some RU
};
struct PhaseDoneBody {
    std::uint64_t phase = 0;
    std::uint32_t queued = 0;  // BUs with contributions that wait for a later phase
    std::uint32_t sent = 0;    // contributions begun since the last time it said so
};
struct OpenBody {
    MepId mep = 0;             // those below are in memory; this one is not given out before the EM has answered
    std::uint32_t events = 0;  // of it that are there
    std::uint32_t unused = 0;
};
struct CloseBody {
    MepId mep = 0;
    std::uint32_t events = 0;  // 0: it is filled, others have all of it already
    std::uint32_t unused = 0;
};
struct ClockBody {
    Time asked = 0;  // on the clock of who asks
    Time now = 0;    // the EM's, in the answer
};

inline constexpr std::uint16_t head_magic = 0x1EAD;

/// The head of every write (one MFP of one source for one attempt): lands before the body, and alone in simulation.
struct Head {
    std::uint16_t magic = head_magic;
    std::uint16_t attempt = 0;
    std::uint16_t source = 0;  // index in the run's source table
    SourceFlag flag = SourceFlag::ok;
    std::uint8_t version = control_version;
    std::uint64_t run = 0;
    MepId mep = 0;
    std::uint32_t checksum = 0;     // of the body (wire/body_checksum.h), where Config::checksum asks for it
    std::uint32_t incarnation = 0;  // of the RU
    std::uint32_t credit = 0;       // the generation of the slot
    std::uint32_t body_bytes = 0;   // MFP bytes behind the head
    std::uint64_t first_event = 0;
    std::uint32_t n_events = 0;
    std::uint32_t goodput_bytes = 0;  // fragment bytes, headers and padding excluded
    Time trigger = 0;                 // intended (open loop) or actual (closed loop) time of its last event
};
static_assert(sizeof(Head) == max_head_bytes);

/// A region of an RU's sources; offers name it by its number there.
struct SourceRegionBody {
    std::uint16_t region = 0;
    std::uint16_t unused = 0;
    std::uint32_t key_size = 0;
};

/// One source of an offered contribution; the sources of an RU come in order.
struct OfferEntry {
    Head head;
    std::uint64_t offset = 0;  // of the body, in that region
    std::uint16_t region = 0;
    std::uint16_t unused[3] = {};
};
static_assert(sizeof(OfferEntry) == 80);

/// The shape of each kind: Traits<kind>::Body, Traits<kind>::Entry.
template <ControlKind>
struct Traits;
#define INCAST_CONTROL(KIND, BODY, ENTRY) \
    template <>                           \
    struct Traits<ControlKind::KIND> {    \
        using Body = BODY;                \
        using Entry = ENTRY;              \
    };
INCAST_CONTROL(hello, HelloBody, NoEntry)
INCAST_CONTROL(beat, NoBody, NoEntry)
INCAST_CONTROL(connected, NoBody, PeerEntry)
INCAST_CONTROL(peer_lost, NoBody, PeerEntry)
INCAST_CONTROL(view, NoBody, ViewEntry)
INCAST_CONTROL(available, AvailableBody, NoEntry)
INCAST_CONTROL(announce, AnnounceBody, AnnounceEntry)
INCAST_CONTROL(abort, NoBody, AttemptEntry)
INCAST_CONTROL(abort_ack, NoBody, CreditEntry)
INCAST_CONTROL(grant, NoBody, CreditEntry)
INCAST_CONTROL(assign, NoBody, AttemptEntry)
INCAST_CONTROL(commit_request, NoBody, AttemptEntry)
INCAST_CONTROL(commit_verdict, NoBody, AttemptEntry)
INCAST_CONTROL(committed, NoBody, AttemptEntry)
INCAST_CONTROL(late, LateBody, NodeEntry)
INCAST_CONTROL(region, RegionBody, KeyPart)
INCAST_CONTROL(request, NoBody, AttemptEntry)
INCAST_CONTROL(placed, PlacedBody, NoEntry)
INCAST_CONTROL(end, EndBody, NoEntry)
INCAST_CONTROL(source_region, SourceRegionBody, KeyPart)
INCAST_CONTROL(offer, AttemptEntry, OfferEntry)
INCAST_CONTROL(phase, PhaseBody, NoEntry)
INCAST_CONTROL(phase_done, PhaseDoneBody, NoEntry)
INCAST_CONTROL(clock_ask, ClockBody, NoEntry)
INCAST_CONTROL(clock_answer, ClockBody, NoEntry)
INCAST_CONTROL(open, OpenBody, NoEntry)
INCAST_CONTROL(close, CloseBody, NoEntry)
#undef INCAST_CONTROL

template <class T>
inline constexpr std::size_t wire_size = std::is_empty_v<T> ? 0 : sizeof(T);

template <ControlKind kind>
inline constexpr std::size_t max_entries =
    wire_size<typename Traits<kind>::Entry> == 0
        ? 0
        : (max_message_bytes - sizeof(ControlHeader) - wire_size<typename Traits<kind>::Body>) /
              sizeof(typename Traits<kind>::Entry);

/// A received message whose size, magic, version and kind were checked. Entries are copied out: message memory has no
/// alignment.
class ControlView {
public:
    /// Nothing if it is not exactly one well-formed control message of that version.
    static std::optional<ControlView> parse(Bytes message, std::uint8_t version = control_version);

    [[nodiscard]] const ControlHeader& header() const { return header_; }
    [[nodiscard]] ControlKind kind() const { return header_.kind; }

    template <ControlKind kind>
    [[nodiscard]] typename Traits<kind>::Body body() const {
        typename Traits<kind>::Body body{};
        if constexpr (wire_size<decltype(body)> > 0) {
            std::memcpy(&body, message_.data() + sizeof(ControlHeader), sizeof body);
        }
        return body;
    }
    template <ControlKind kind>
    [[nodiscard]] typename Traits<kind>::Entry entry(std::uint32_t index) const {
        using Kind = Traits<kind>;
        typename Kind::Entry entry{};
        std::memcpy(&entry,
                    message_.data() + sizeof(ControlHeader) + wire_size<typename Kind::Body> + index * sizeof entry,
                    sizeof entry);
        return entry;
    }

private:
    ControlHeader header_;
    Bytes message_;
};

/// A message being built, in place on the stack. Adding beyond max_entries is refused (returns false): send it and
/// begin again.
template <ControlKind kind>
class ControlMessage {
public:
    using Body = typename Traits<kind>::Body;
    using Entry = typename Traits<kind>::Entry;

    ControlMessage(std::uint64_t run, std::uint32_t view, std::uint32_t incarnation,
                   std::uint8_t version = control_version)
        : version_(version), view_(view), run_(run), incarnation_(incarnation) {}
    void set_body(const Body& body) { std::memcpy(bytes_ + sizeof(ControlHeader), &body, wire_size<Body>); }
    bool add(const Entry& entry) {
        if (full()) {
            return false;
        }
        std::memcpy(bytes_ + sizeof(ControlHeader) + wire_size<Body> + count_ * sizeof(Entry), &entry, sizeof(Entry));
        ++count_;
        return true;
    }
    void clear() { count_ = 0; }
    [[nodiscard]] std::uint32_t count() const { return count_; }
    [[nodiscard]] bool full() const { return count_ == max_entries<kind>; }
    Bytes bytes() {
        // A ControlHeader in words, which is how it is copied on: see transport/copy_head.h.
        constexpr ControlHeader fixed{.kind = kind};
        const std::uint64_t words[] = {std::uint64_t{fixed.magic} | std::uint64_t{version_} << 16 |
                                           std::uint64_t{static_cast<std::uint8_t>(kind)} << 24 |
                                           std::uint64_t{view_} << 32,
                                       run_, std::uint64_t{incarnation_} | std::uint64_t{count_} << 32};
        static_assert(sizeof words == sizeof(ControlHeader));
        std::memcpy(bytes_, words, sizeof words);
        return {bytes_, sizeof(ControlHeader) + wire_size<Body> + count_ * wire_size<Entry>};
    }

private:
    std::uint32_t count_ = 0;
    std::uint8_t version_;
    std::uint32_t view_;
    std::uint64_t run_;
    std::uint32_t incarnation_;
    std::byte bytes_[max_message_bytes];  // uninitialised on purpose: only what is sent gets written
};

/// Puts a key, of at most max_key_bytes, into a message; `body` says the rest.
template <ControlKind kind>
void set_key(ControlMessage<kind>& message, typename Traits<kind>::Body body, Bytes key) {
    static_assert(std::is_same_v<typename Traits<kind>::Entry, KeyPart>);
    static_assert(max_entries<kind> * sizeof(KeyPart) >= max_key_bytes);
    body.key_size = static_cast<decltype(body.key_size)>(key.size());
    message.set_body(body);
    while (!key.empty()) {
        KeyPart part;
        const Bytes bytes = key.first(std::min(key.size(), sizeof part.bytes));
        std::memcpy(part.bytes, bytes.data(), bytes.size());
        message.add(part);
        key = key.subspan(bytes.size());
    }
}
/// The key in a message; nothing if it is too long, or the parts are not those that it needs.
template <ControlKind kind>
[[nodiscard]] std::optional<Blob> key_in(const ControlView& message) {
    const std::size_t size = message.body<kind>().key_size;
    constexpr std::size_t part_bytes = sizeof(KeyPart::bytes);
    if (size > max_key_bytes || message.header().count != (size + part_bytes - 1) / part_bytes) return std::nullopt;
    Blob key{std::vector<std::byte>(size)};
    for (std::size_t at = 0; at < size; at += part_bytes) {
        const KeyPart part = message.entry<kind>(static_cast<std::uint32_t>(at / part_bytes));
        std::memcpy(key.bytes.data() + at, part.bytes, std::min(part_bytes, size - at));
    }
    return key;
}

/// The head as the words it is made of, for writing. Built in words and copied in words: see transport/copy_head.h.
using HeadWords = std::array<std::uint64_t, sizeof(Head) / sizeof(std::uint64_t)>;
[[nodiscard]] inline HeadWords to_words(const Head& head) {
    static_assert(std::endian::native == std::endian::little);
    const auto pair = [](std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; };
    return {std::uint64_t{head.magic} | std::uint64_t{head.attempt} << 16 | std::uint64_t{head.source} << 32 |
                std::uint64_t{static_cast<std::uint8_t>(head.flag)} << 48 | std::uint64_t{head.version} << 56,
            head.run,
            head.mep,
            pair(head.checksum, head.incarnation),
            pair(head.credit, head.body_bytes),
            head.first_event,
            pair(head.n_events, head.goodput_bytes),
            static_cast<std::uint64_t>(head.trigger)};
}

}  // namespace incast::wire
