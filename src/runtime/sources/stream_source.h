// A source whose boards connect by TCP, and send MFPs back to back (EB-C9): one source per connection, or several. What
// has come in full is copied to its place in the ring; a packet that a connection ends within is never built.
//
// A board that is ahead waits, by TCP's own back-pressure: nothing is given up for its sake. What a board has not sent
// `patience` after another one did is given up, and from then on nothing waits for it until something of it comes that
// fits. A source belongs to the connection that sent it first, until that one ends, or is silent while another waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ingest/stream.h"
#include "os/descriptor.h"
#include "os/spare.h"
#include "runtime/sources/windowed_source.h"

namespace incast::sources {

class StreamSource final : public WindowedSource {
public:
    /// Who waits for a source that another connection has gets it once that one was silent for so long, or is refused.
    static constexpr Time contested_for = 2 * ps_per_s;

    explicit StreamSource(const BoardOptions& options) : WindowedSource(options), options_(options) {}

    Result<Ok> attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                      std::uint32_t count) override;
    [[nodiscard]] std::vector<std::string> take_news(Time now) override;
    /// Where boards connect to, once attached.
    [[nodiscard]] const std::string& address() const { return address_; }

private:
    struct Line {
        os::Descriptor socket;
        std::string peer;
        ingest::Stream stream;
        Time heard = 0;
        std::uint64_t ahead_until = 0;  // its oldest packet waits for the MEPs below to be made
        Time contested_since = 0;       // its oldest packet is of a source that another connection has; 0: never
        bool is_over = false;
    };

    Result<Ok> listen(const protocol::Config& config, std::uint32_t first_source);
    void drain(Time now) override;
    void gave_up() override;
    void look(Time now);
    void make_room(Time now);
    void take_from(Time now, Line& line);
    bool receive(Time now, Line& line);
    bool take(Time now, Line& line, const wire::MfpView& packet);
    enum class Right : std::uint8_t { has, waits, none };
    Right right_to(Time now, Line& line, std::uint32_t index);
    [[nodiscard]] bool is_silent(Time now, const Line& line) const;
    void part_with(Line& line, const std::string& why);
    void tell(std::string news);

    BoardOptions options_;
    os::Descriptor listener_;
    os::Spare spare_;
    std::string address_;
    std::unordered_map<std::uint16_t, std::uint32_t> index_of_;  // by the id in packets
    std::vector<std::unique_ptr<Line>> lines_;                   // in the order in which they came
    std::vector<Line*> owners_;                                  // by source of this readout unit
    std::vector<bool> was_owned_;                                // the same
    std::size_t most_packet_bytes_ = 0;
    Time looked_at_ = 0;
    std::vector<std::string> news_;
    bool told_address_ = false;
};

}  // namespace incast::sources
