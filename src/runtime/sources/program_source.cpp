#include "runtime/sources/program_source.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace incast::sources {
namespace {

constexpr Time between_looks = ps_per_ms;  // for programs that come and go
constexpr int packets_at_once = 4096;      // of one source
constexpr std::size_t most_news = 256;     // of programs that come and go over and over

}  // namespace

ProgramSource::~ProgramSource() {
    for (std::size_t index = 0; index < door_.size(); ++index) {
        if (Program* const program = door_.program(index)) program->ring.end(source::State::ended);
    }
}

Result<Ok> ProgramSource::attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                                 std::uint32_t count) {
    if (transport.capabilities().phantom_bodies) {
        return Error{"source.kind = program: programs are real, and this network is simulated"};
    }
    lanes_.resize(count);
    for (std::uint32_t index = 0; index < count; ++index) {
        const protocol::SourceSpec& spec = config.sources[first_source + index];
        source::Welcome welcome;
        welcome.run = config.run;
        welcome.total_events = total_events();
        welcome.ring_bytes = source::ring_bytes_for(spec.cap_bytes);
        welcome.node = static_cast<std::uint32_t>(spec.ru);
        welcome.packing = packing();
        welcome.source = spec.id;
        if (Result<Ok> opened = door_.open(options_.name, welcome); !opened) return opened;
    }
    return make_windows(transport, config, first_source, count);
}

/// Who comes, who has gone. What one that has gone left is taken first.
void ProgramSource::look(Time now) {
    if (now - looked_at_ < between_looks) return;
    looked_at_ = now;
    door_.look();
    for (std::size_t index = 0; index < lanes_.size(); ++index) {
        const Program* const program = door_.program(index);
        Lane& lane = lanes_[index];
        if (program == nullptr || lane.is_told) continue;
        lane.is_told = true;
        if (std::exchange(lane.was_seen, true) && news_.size() < most_news) {
            news_.push_back(
                fmt::format("source {} has a program again: process {}", windows()[index].source(), program->process));
        }
    }
}

void ProgramSource::drain(Time now) {
    look(now);
    for (std::size_t index = 0; index < lanes_.size(); ++index) {
        if (door_.program(index) != nullptr) take_from(now, index);
    }
}

void ProgramSource::take_from(Time now, std::size_t index) {
    Program& program = *door_.program(index);
    ingest::Window& window = windows()[index];
    Lane& lane = lanes_[index];
    // Looked at first: what it committed before it went is there once it is seen to have gone.
    const bool had_gone = program.has_gone;
    bool is_empty = false;
    for (int packets = 0; packets < packets_at_once && lane.ahead_until <= next(); ++packets) {
        const std::optional<Bytes> packet = program.ring.peek();
        if (!packet) {
            is_empty = true;
            break;
        }
        const std::uint64_t taken = window.counts().taken_events;
        const Result<ingest::Window::Answer> answer = window.take_shared(*packet);
        if (!answer) {
            note_refused(fmt::format("a packet of source {}: {}", window.source(), answer.error().message));
        } else if (*answer == ingest::Window::Answer::ahead) {
            lane.ahead_until = window.wants_next();
            note_known(now, std::min(window.wants_next(), next() + open_meps()));
            break;
        } else {
            note_taken(now, window);
            if (window.counts().taken_events > taken) expect(static_cast<std::uint32_t>(index), true);
        }
        program.ring.pop();
    }
    program.ring.tell(next() * packing());
    if (program.ring.is_broken() || (had_gone && is_empty)) part_with(index);
}

/// Its place is free for another one.
void ProgramSource::part_with(std::size_t index) {
    Program& program = *door_.program(index);
    const std::uint16_t id = windows()[index].source();
    std::string why;
    if (program.ring.is_broken()) {
        program.ring.end(source::State::ejected);
        why = fmt::format("what the program of source {} (process {}) wrote makes no sense: it is dropped", id,
                          program.process);
    } else if (program.ring.is_closed()) {
        why = fmt::format("the program of source {} (process {}) has left", id, program.process);
        expect(static_cast<std::uint32_t>(index), false);
    } else {
        why = fmt::format("the program of source {} (process {}) died", id, program.process);
    }
    if (news_.size() < most_news) {
        news_.push_back(why + "; later events are flagged late for it until a program is this source again");
    }
    door_.dismiss(index);
    lanes_[index].ahead_until = 0;
    lanes_[index].is_told = false;
}

/// What waited long enough for them waits for them no more.
void ProgramSource::gave_up() {
    for (std::uint32_t index = 0; index < windows().size(); ++index) {
        if (!windows()[index].is_complete(next())) expect(index, false);
    }
}

std::vector<std::string> ProgramSource::take_news(Time now) {
    look(now);
    std::vector<std::string> news;
    if (!told_name_ && !windows().empty()) {
        told_name_ = true;
        const std::uint16_t first = windows().front().source();
        news.push_back(windows().size() == 1
                           ? fmt::format("the program of source {} attaches to {}", first, options_.name)
                           : fmt::format("the programs of sources {} to {} attach to {}", first,
                                         windows().back().source(), options_.name));
    }
    std::ranges::move(news_, std::back_inserter(news));
    news_.clear();
    if (const std::string refusal = take_refusal(); !refusal.empty()) {
        news.push_back(fmt::format("{}; it is refused, and others like it", refusal));
    }
    tell_of_sources(now, news);
    return news;
}

}  // namespace incast::sources
