// Full-duplex traffic between two endpoints that run on their own: messages and writes with notices in one random
// sequence per direction. The receiver checks the order of everything and the bytes of every piece, then lets the
// sender reuse the slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <incast/transport.h>

#include "base/prng.h"

namespace incast::conformance {

/// Bytes that depend on their position and a seed; the same on every side.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed);

/// At once, not byte by byte: that is most of the time of these tests under sanitizers.
[[nodiscard]] bool same_bytes(std::span<const std::byte> left, std::span<const std::byte> right);

class Traffic {
public:
    static constexpr std::uint32_t slots = 8;
    static constexpr std::uint32_t body_bytes_max = 100'000;
    static constexpr std::uint32_t slot_bytes = 262'144;
    /// What the receiving and the sending region must hold.
    static constexpr std::uint64_t region_bytes = std::uint64_t{slots} * slot_bytes;

    struct Setup {
        Peer peer{};
        Local received{};  // exposed to the peer
        Local source{};
        Remote remote{};         // the peer's `received`
        Remote remote_source{};  // the peer's `source`
        std::uint64_t send_seed = 0;
        std::uint64_t receive_seed = 0;  // the peer's send_seed
        std::uint32_t items = 0;
    };
    Traffic(Transport& transport, const Setup& setup);

    /// Posts and polls a little. True while there is more to do.
    bool step(Time now);
    /// Empty if all was right so far.
    [[nodiscard]] const std::string& failure() const { return failure_; }

private:
    struct Item {
        std::uint64_t number = 0;
        bool is_write = false;
        bool is_read = false;        // a message offers bytes of the source region, which the receiver reads
        bool has_companion = false;  // a write without notice goes before, to the second half of the slot
        std::uint32_t length = 0;    // of the message or body
        std::uint32_t slot = 0;
        std::uint64_t seed = 0;  // of the pattern
    };
    /// Both sides draw the same items.
    class Script {
    public:
        Script(std::uint64_t seed, bool reads) : random_(seed), reads_(reads) {}
        Item next();

    private:
        base::Prng random_;
        std::uint64_t number_ = 0;
        std::uint32_t writes_ = 0;
        std::uint32_t offers_ = 0;
        bool reads_;
    };
    enum class Kind : std::uint32_t { item = 1, acknowledge = 2, bye = 3, acknowledge_reads = 4 };

    bool post();
    bool post_item();
    bool post_read();
    bool post_count(Kind kind, std::uint64_t count);
    void receive(const Event& event);
    void receive_item(Bytes message);
    void receive_completion(const Event& event);
    void finish_read(std::uint32_t slot);
    void receive_notice(std::uint16_t slot);
    void check_piece(const Item& item, std::uint64_t offset);
    /// The bytes of an item; valid until the next call.
    Bytes expected(const Item& item);
    void fail(const std::string& what);

    Transport& transport_;
    Setup setup_;
    Script sending_;
    Script receiving_;
    Item next_sent_;
    bool companion_sent_ = false;
    std::uint32_t items_sent_ = 0;
    std::uint32_t items_received_ = 0;
    std::uint64_t writes_sent_ = 0;
    std::uint64_t writes_acknowledged_ = 0;  // by the peer
    std::uint64_t writes_received_ = 0;
    std::uint64_t acknowledgement_sent_ = 0;
    std::uint64_t offers_sent_ = 0;
    std::uint64_t offers_acknowledged_ = 0;  // by the peer
    std::array<Item, slots> offered_{};      // to us, by slot
    std::uint64_t offers_received_ = 0;
    std::uint64_t reads_posted_ = 0;
    std::uint64_t reads_done_ = 0;  // in any order
    std::uint64_t reads_acknowledged_ = 0;
    std::uint64_t pending_ = 0;  // completions owed to us
    std::uint32_t polls_after_bye_ = 0;
    bool bye_sent_ = false;
    bool bye_received_ = false;
    bool phantom_ = false;
    std::vector<std::byte> expected_;
    std::string failure_;
};

}  // namespace incast::conformance
