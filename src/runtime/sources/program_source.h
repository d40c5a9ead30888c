// A source whose fragments programs of this host write into shared memory (docs/source.md): one program for each
// source, which may die, stall, come back, and say what it likes. What they write is copied once, into its place in the
// ring of the readout unit, before anything of it is believed.
//
// A program that is ahead waits in its memory: nothing is given up for its sake. What a program has not sent `patience`
// after another one did is given up, and from then on nothing waits for it until something of it comes that fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/sources/program_door.h"
#include "runtime/sources/windowed_source.h"

namespace incast::sources {

class ProgramSource final : public WindowedSource {
public:
    explicit ProgramSource(const ProgramOptions& options) : WindowedSource(options), options_(options) {}
    /// Programs see the end.
    ~ProgramSource() override;

    Result<Ok> attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                      std::uint32_t count) override;
    [[nodiscard]] std::vector<std::string> take_news(Time now) override;

private:
    struct Lane {
        std::uint64_t ahead_until = 0;  // its oldest packet waits for the MEPs below to be made
        bool was_seen = false;          // a program is, or was, this source
        bool is_told = false;           // that it has one
    };

    void drain(Time now) override;
    void gave_up() override;
    void look(Time now);
    void take_from(Time now, std::size_t index);
    void part_with(std::size_t index);

    ProgramOptions options_;
    ProgramDoor door_;
    std::vector<Lane> lanes_;
    Time looked_at_ = 0;
    std::vector<std::string> news_;
    bool told_name_ = false;
};

}  // namespace incast::sources
