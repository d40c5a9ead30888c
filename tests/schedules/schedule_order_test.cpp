// The order in which readout units really send, recorded where they post, is the order of their schedule: on every
// transport of the list, with the nodes of a whole run in one thread (EB-C6).
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <ostream>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "support/protocol.h"
#include "transport/builtin/builtin.h"
#include "transport/decorator/trace.h"

namespace incast {
namespace {

using protocol::Config;
using protocol::MepId;
using protocol::Node;
using protocol::NodeState;
using protocol::Schedule;
using transport::decorator::TraceRecord;
using wire::ControlKind;

constexpr std::uint32_t body_bytes = 1000;
constexpr std::size_t none = ~std::size_t{0};

/// What an RU heard and did that matters for its order. One source per RU: one write is one contribution.
struct Step {
    enum class What : std::uint8_t { announced, granted, region, room, blocked, sent, phase, phase_done, placed };
    What what{};
    std::uint32_t ru = 0;
    std::size_t bu = none;
    MepId mep = 0;
    std::uint32_t credit = 0;
    std::uint64_t phase = 0;
    Time now = 0;
};

struct Request {
    std::uint32_t ru = 0;
    MepId mep = 0;
};

class Recorder final : public transport::decorator::TraceSink {
public:
    Recorder(std::uint32_t rus, std::uint32_t bus) : rus_(rus), bus_(bus), requests(bus) {}

    void record(const TraceRecord& record) override {
        const auto self = static_cast<std::uint32_t>(record.self);
        const std::size_t peer_bu = bu_of(static_cast<std::uint32_t>(record.peer));
        if (record.what == TraceRecord::What::send && self >= rus_ && self < rus_ + bus_) {
            record_requests(record, self - rus_);
        }
        if (self >= rus_) return;
        Step step{.ru = self, .bu = peer_bu, .now = record.now};
        if (record.what == TraceRecord::What::write) {
            wire::Head head;
            std::memcpy(&head, record.bytes.data(), sizeof head);
            const bool out = record.post == Post::done || record.post == Post::pending;
            step.what = out ? Step::What::sent : Step::What::blocked;
            step.mep = head.mep;
            step.credit = head.credit;
            steps.push_back(step);
        } else if (record.what == TraceRecord::What::send && record.post == Post::done) {
            const auto message = wire::ControlView::parse(record.bytes);
            if (message->kind() != ControlKind::phase_done) return;
            step.what = Step::What::phase_done;
            step.phase = message->body<ControlKind::phase_done>().phase;
            steps.push_back(step);
        } else if (record.what == TraceRecord::What::event) {
            record_event(record, step);
        }
    }

private:
    [[nodiscard]] std::size_t bu_of(std::uint32_t node) const {
        return node >= rus_ && node < rus_ + bus_ ? node - rus_ : none;
    }
    void record_requests(const TraceRecord& record, std::uint32_t bu) {
        const auto message = wire::ControlView::parse(record.bytes);
        if (message->kind() != ControlKind::request || record.post != Post::done) return;
        for (std::uint32_t index = 0; index < message->header().count; ++index) {
            requests[bu].push_back(
                {static_cast<std::uint32_t>(record.peer), message->entry<ControlKind::request>(index).mep});
        }
    }
    void record_event(const TraceRecord& record, Step step) {
        if (record.kind == Event::Kind::room) {
            step.what = Step::What::room;
            steps.push_back(step);
        }
        if (record.kind != Event::Kind::message) return;
        const auto message = wire::ControlView::parse(record.bytes);
        switch (message->kind()) {
            case ControlKind::announce:
                step.what = Step::What::announced;
                for (std::uint32_t index = 0; index < message->header().count; ++index) {
                    step.bu = bu_of(message->entry<ControlKind::announce>(index).bu);
                    step.mep = message->body<ControlKind::announce>().base + index;
                    step.credit = message->entry<ControlKind::announce>(index).credit;
                    steps.push_back(step);
                }
                break;
            case ControlKind::grant:
                step.what = Step::What::granted;
                for (std::uint32_t index = 0; index < message->header().count; ++index) {
                    step.credit = message->entry<ControlKind::grant>(index).credit;
                    steps.push_back(step);
                }
                break;
            case ControlKind::region:  // the last of them: from here on it can be written to
                if (message->body<ControlKind::region>().index + 1U < regions) break;
                [[fallthrough]];
            case ControlKind::placed:
                step.what = message->kind() == ControlKind::placed ? Step::What::placed : Step::What::region;
                steps.push_back(step);
                break;
            case ControlKind::phase:
                step.what = Step::What::phase;
                step.phase = message->body<ControlKind::phase>().phase;
                steps.push_back(step);
                break;
            default:
                break;
        }
    }

    std::uint32_t rus_;
    std::uint32_t bus_;

public:
    std::uint32_t regions = 1;  // of a BU, of which an RU is told
    std::vector<Step> steps;    // of all RUs: there is one thread
    std::vector<std::vector<Request>> requests;
};

/// Nodes 0.. read out, then come the builder units, then the event manager.
class Crew {
public:
    Crew(const Config& config, transport::Medium& medium, Recorder& recorder)
        : config_(config), members_(config.nodes.size()), begin_(std::chrono::steady_clock::now()) {
        for (std::uint32_t index = 0; index < members_.size(); ++index) {
            Member& member = members_[index];
            transport::EndpointOptions options;
            options.self = Peer{index};
            options.run = config.run;
            options.max_peers = static_cast<std::uint32_t>(members_.size());
            member.transport =
                transport::decorator::make_trace(medium.endpoint(options).value(), Peer{index}, recorder);
            member.source = std::make_unique<protocol::testing::PlainSource>(body_bytes);
            member.sink = std::make_unique<protocol::testing::RecordingSink>();
            member.node = std::make_unique<Node>(config_, Peer{index}, 1, *member.transport, member.source.get(),
                                                 member.sink.get(), &ledger);
            EXPECT_TRUE(member.node->start(now()).ok());
        }
        for (std::uint32_t one = 0; one < members_.size(); ++one) {
            for (std::uint32_t two = 0; two < members_.size(); ++two) {
                if (one != two) {
                    members_[one].node->update_peer(now(), Peer{two}, 1, members_[two].transport->address());
                }
            }
        }
    }

    [[nodiscard]] Time now() const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_).count() *
               ps_per_ns;
    }
    /// True once all nodes have finished; `asleep` is not stepped.
    bool round(std::size_t asleep = none) {
        bool finished = true;
        for (std::size_t index = 0; index < members_.size(); ++index) {
            if (index != asleep) members_[index].node->step(now());
            finished = finished && members_[index].node->state() == NodeState::finished;
        }
        return finished;
    }
    void play() {
        const Time deadline = now() + 60 * ps_per_s;
        while (!round()) {
            ASSERT_LT(now(), deadline) << ledger.commits << " MEPs are committed";
        }
        EXPECT_EQ(ledger.commits, config_.total_meps);
        EXPECT_EQ(ledger.flagged, 0U);
    }
    [[nodiscard]] const protocol::Counters& counters(std::size_t node) const { return members_[node].node->counters(); }
    [[nodiscard]] const protocol::Counters& em() const { return counters(static_cast<std::size_t>(config_.em)); }

    protocol::testing::CountingLedger ledger;

private:
    struct Member {
        std::unique_ptr<Transport> transport;
        std::unique_ptr<protocol::testing::PlainSource> source;
        std::unique_ptr<protocol::testing::RecordingSink> sink;
        std::unique_ptr<Node> node;
    };
    Config config_;
    std::vector<Member> members_;
    std::chrono::steady_clock::time_point begin_;
};

struct Shape {
    std::uint32_t rus = 0;
    std::uint32_t bus = 0;
    friend void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.rus << "x" << shape.bus; }
};

/// What must not change the order.
struct Variant {
    protocol::Layout layout = protocol::Layout::contiguous;
    protocol::Assignment assignment = protocol::Assignment::em;
    bool acknowledged = false;  // every write
    std::uint64_t seed = 1;
};
std::string name_of(const Variant& variant) {
    constexpr const char* layouts[] = {"contiguous", "per_mep", "segmented", "per_source"};
    constexpr const char* assignments[] = {"_em", "_static", "_source_credits"};
    return std::string(layouts[static_cast<std::size_t>(variant.layout)]) +
           assignments[static_cast<std::size_t>(variant.assignment)] +
           (variant.acknowledged ? "_acknowledged" : "_plain") + "_seed_" + std::to_string(variant.seed);
}
void PrintTo(const Variant& variant, std::ostream* out) {
    *out << name_of(variant);
}

/// All with the variable INCAST_MATRIX_SEEDS set to a number of seeds, otherwise some that cover each value.
std::vector<Variant> variants() {
    using protocol::Assignment;
    using protocol::Layout;
    // There is one thread yet. NOLINTNEXTLINE(concurrency-mt-unsafe)
    const char* seeds = std::getenv("INCAST_MATRIX_SEEDS");
    if (seeds == nullptr) {
        return {{Layout::per_mep, Assignment::em, true},
                {Layout::per_mep, Assignment::fixed, false},
                {Layout::segmented, Assignment::em, false},
                {Layout::segmented, Assignment::fixed, true},
                {Layout::contiguous, Assignment::source_credits, true},
                {Layout::segmented, Assignment::source_credits, false}};
    }
    std::vector<Variant> all;
    for (std::uint64_t seed = 1; seed <= std::strtoull(seeds, nullptr, 10); ++seed)
        for (const Layout layout : {Layout::contiguous, Layout::per_mep, Layout::segmented})
            for (const Assignment assignment : {Assignment::em, Assignment::fixed, Assignment::source_credits})
                for (const bool acknowledged : {false, true})
                    all.push_back({layout, assignment, acknowledged, seed});
    return all;
}

Config config_of(Shape shape, Schedule schedule) {
    Config config = protocol::testing::make_config(shape.rus, shape.bus, false, 1, body_bytes);
    config.schedule = schedule;
    config.total_meps = 120;
    config.slot_time = 2 * ps_per_ms;
    config.barrier_deadline = 30 * ps_per_s;  // no test of speed: nothing expires
    config.late_after = 30 * ps_per_s;
    config.heartbeat = ps_per_s;
    config.detection_deadline = 30 * ps_per_s;
    return config;
}

/// Every MEP once from that RU to each BU's slots: what is in order is also all of it.
void expect_all(const Recorder& recorder, std::uint32_t ru, std::uint64_t meps) {
    std::set<MepId> sent;
    for (const Step& step : recorder.steps) {
        if (step.ru == ru && step.what == Step::What::sent) {
            EXPECT_TRUE(sent.insert(step.mep).second) << step.mep;
        }
    }
    EXPECT_EQ(sent.size(), meps);
}

class Order : public ::testing::TestWithParam<std::tuple<std::string_view, Shape, Variant>> {
public:
    void play(Config config) {
        const Variant& variant = std::get<2>(GetParam());
        config.layout = variant.layout;
        config.assignment = variant.assignment;
        config.ack_per_write = variant.acknowledged;
        config.seed = variant.seed;
        ASSERT_TRUE(protocol::validate(config).ok());
        recorder.regions = protocol::slot_layout(config).regions_of_ru(
            config.credits + config.quarantine_slots + config.held_slots, 1);
        const transport::Descriptor* builtin = transport::find_transport(std::get<0>(GetParam()));
        ASSERT_NE(builtin, nullptr);
        medium_ = builtin->make({}).value();
        crew = std::make_unique<Crew>(config, *medium_, recorder);
        crew->play();
        EXPECT_EQ(crew->em().barrier_expired, 0U);
        for (std::uint32_t ru = 0; ru < shape.rus; ++ru)
            expect_all(recorder, ru, config.total_meps);
    }

    /// An RU passes over who has no credit, so there is no order that waits for it.
    [[nodiscard]] bool refused(Schedule schedule) const {
        Config config = config_of(shape, schedule);
        config.assignment = std::get<2>(GetParam()).assignment;
        return !protocol::validate(config).ok();
    }
    [[nodiscard]] bool keeps_credits() const {
        return std::get<2>(GetParam()).assignment == protocol::Assignment::source_credits;
    }

    Shape shape = std::get<1>(GetParam());
    Recorder recorder{shape.rus, shape.bus};
    std::unique_ptr<Crew> crew;

private:
    std::unique_ptr<transport::Medium> medium_;
};

TEST_P(Order, SequentialIsThatOfTheMeps) {
    ASSERT_EQ(refused(Schedule::sequential), keeps_credits());
    if (keeps_credits()) return;
    play(config_of(shape, Schedule::sequential));
    for (std::uint32_t ru = 0; ru < shape.rus; ++ru) {
        MepId next = 0;
        for (const Step& step : recorder.steps) {
            if (step.ru == ru && step.what == Step::What::sent) {
                EXPECT_EQ(step.mep, next++);
            }
        }
    }
}

/// What an RU knows of a BU: what waits to be sent there, and whether that could be done.
struct Known {
    std::deque<std::uint32_t> waiting;  // credits of what is announced
    std::set<std::uint32_t> granted;
    bool open = false;
    bool keeps_credits = false;
    [[nodiscard]] bool credited() const {
        return !waiting.empty() && (!keeps_credits || granted.contains(waiting.front()));
    }
};

/// Follows what each RU knows: who has something announced and credit for it, and can be written to. Returns how often
/// a send passes over one of those on the way from the last one.
std::size_t passed_over(const Recorder& recorder, Shape shape, bool keeps_credits) {
    std::size_t passed = 0;
    for (std::uint32_t ru = 0; ru < shape.rus; ++ru) {
        std::vector<Known> known(shape.bus);
        for (Known& each : known)
            each.keeps_credits = keeps_credits;
        std::size_t next = (ru + 1) % shape.bus;
        for (const Step& step : recorder.steps) {
            if (step.ru != ru || step.bu == none) continue;
            Known& bu = known[step.bu];
            switch (step.what) {
                case Step::What::announced:
                    bu.waiting.push_back(step.credit);
                    break;
                case Step::What::granted:
                    bu.granted.insert(step.credit);
                    break;
                case Step::What::region:
                case Step::What::room:
                    bu.open = true;
                    break;
                case Step::What::sent:
                case Step::What::blocked:
                    EXPECT_TRUE(bu.credited());
                    EXPECT_EQ(bu.waiting.front(), step.credit);
                    for (std::size_t at = next % shape.bus; at != step.bu; at = (at + 1) % shape.bus)
                        passed += known[at].credited() && known[at].open ? 1 : 0;
                    next = step.bu + 1;
                    if (step.what == Step::What::sent) {
                        bu.waiting.pop_front();
                    } else {
                        bu.open = false;
                    }
                    break;
                default:
                    break;
            }
        }
    }
    return passed;
}

TEST_P(Order, LinearShiftPassesNobodyOver) {
    play(config_of(shape, Schedule::linear_shift));
    EXPECT_EQ(passed_over(recorder, shape, keeps_credits()), 0U);
}

TEST_P(Order, RandomIsAnother) {
    play(config_of(shape, Schedule::random));
    EXPECT_GT(passed_over(recorder, shape, keeps_credits()), 0U);
}

TEST_P(Order, BarrelBarrierServesOneInEachPhaseAndWaitsForAll) {
    play(config_of(shape, Schedule::barrel_barrier));
    std::vector<std::uint64_t> phase(shape.rus);
    std::vector<std::uint64_t> done(shape.rus);
    std::vector<std::uint64_t> sent_in(shape.rus);
    for (const Step& step : recorder.steps) {
        if (step.what == Step::What::phase) {
            EXPECT_EQ(step.phase, phase[step.ru] + 1);
            phase[step.ru] = step.phase;
        } else if (step.what == Step::What::phase_done) {
            EXPECT_EQ(step.phase, phase[step.ru]);
            done[step.ru] = step.phase;
        } else if (step.what == Step::What::sent) {
            EXPECT_EQ(step.bu, (step.ru + phase[step.ru]) % std::max(shape.rus, shape.bus));
            EXPECT_GT(phase[step.ru], sent_in[step.ru]);  // one in each
            sent_in[step.ru] = phase[step.ru];
            for (std::uint32_t other = 0; other < shape.rus; ++other)
                EXPECT_GE(done[other] + 1, phase[step.ru]);
        }
    }
}

TEST_P(Order, LockstepServesTheSameMepsInEachRound) {
    ASSERT_EQ(refused(Schedule::lockstep), keeps_credits());
    if (keeps_credits()) return;
    play(config_of(shape, Schedule::lockstep));
    std::vector<std::uint64_t> round(shape.rus);
    std::vector<std::uint64_t> done(shape.rus);
    std::vector<std::map<std::uint64_t, std::vector<Step>>> rounds(shape.rus);
    for (const Step& step : recorder.steps) {
        if (step.what == Step::What::phase) {
            round[step.ru] = step.phase;
        } else if (step.what == Step::What::phase_done) {
            done[step.ru] = step.phase;
        } else if (step.what == Step::What::sent) {
            rounds[step.ru][round[step.ru]].push_back(step);
            for (std::uint32_t other = 0; other < shape.rus; ++other)
                EXPECT_GE(done[other] + 1, round[step.ru]);
        }
    }
    bool full = false;
    for (std::uint32_t ru = 0; ru < shape.rus; ++ru) {
        ASSERT_EQ(rounds[ru].size(), rounds[0].size());
        for (const auto& [number, steps] : rounds[ru]) {
            std::set<MepId> meps;
            std::set<MepId> others;
            std::optional<std::size_t> last;
            for (const Step& step : steps) {
                const std::size_t place = (step.bu + shape.bus - (ru + 1) % shape.bus) % shape.bus;
                EXPECT_TRUE(!last || place > *last) << "round " << number;
                last = place;
                meps.insert(step.mep);
            }
            for (const Step& step : rounds[0][number])
                others.insert(step.mep);
            EXPECT_EQ(meps, others) << "round " << number;
            full = full || steps.size() == shape.bus;
        }
    }
    EXPECT_TRUE(full);
}

/// The nodes share a clock, so what the recorder sees is the time of the schedule.
TEST_P(Order, TimeSlotsServeWhoseTurnItIs) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    if (!transport::find_transport(std::get<0>(GetParam()))->traits.in_process)
        GTEST_SKIP() << "under a sanitizer a step takes longer than a slot";
#endif
#endif
    const Config config = config_of(shape, Schedule::barrel_time_slot);
    play(config);
    std::uint64_t unguarded = 0;
    std::uint64_t out_of_turn = 0;
    for (std::uint32_t ru = 0; ru < shape.rus; ++ru) {
        unguarded += crew->counters(ru).unguarded_slots;
        std::int64_t last = -1;
        for (const Step& step : recorder.steps) {
            if (step.ru != ru || step.what != Step::What::sent) continue;
            const std::int64_t slot = step.now / config.slot_time;
            const std::size_t turn = (ru + static_cast<std::uint64_t>(slot)) % std::max(shape.rus, shape.bus);
            out_of_turn += slot <= last || step.bu != turn ? 1 : 0;
            last = slot;
        }
    }
    // Only where the clock was not known well enough, which the RU says itself.
    EXPECT_LE(out_of_turn, unguarded);
}

TEST_P(Order, AGapIsKept) {
    Config config = config_of(shape, Schedule::linear_shift);
    config.inter_send_gap = 200 * ps_per_us;
    play(config);
    EXPECT_EQ(passed_over(recorder, shape, keeps_credits()), 0U);
    for (std::uint32_t ru = 0; ru < shape.rus; ++ru) {
        std::optional<Time> last;
        for (const Step& step : recorder.steps) {
            if (step.ru != ru || step.what != Step::What::sent) continue;
            if (last) {
                EXPECT_GE(step.now - *last, config.inter_send_gap);
            }
            last = step.now;
        }
    }
}

TEST_P(Order, RequestsOfABuilderUnit) {
    for (const Schedule schedule : {Schedule::linear_shift, Schedule::sequential}) {
        recorder.requests.assign(shape.bus, {});
        recorder.steps.clear();
        Config config = config_of(shape, schedule);
        config.scheme = protocol::Scheme::pull_write;
        config.parallel_requests = 1;
        play(config);
        for (std::uint32_t bu = 0; bu < shape.bus; ++bu) {
            const std::uint32_t first = schedule == Schedule::linear_shift ? bu + 1 : 0;
            std::map<MepId, std::uint32_t> asked;
            for (const Request& request : recorder.requests[bu])
                EXPECT_EQ(request.ru, (first + asked[request.mep]++) % shape.rus);
        }
    }
}

std::string name_of_case(const ::testing::TestParamInfo<Order::ParamType>& each) {
    const Shape shape = std::get<1>(each.param);
    return std::string(std::get<0>(each.param)) + "_" + std::to_string(shape.rus) + "x" + std::to_string(shape.bus) +
           "_" + name_of(std::get<2>(each.param));
}

INSTANTIATE_TEST_SUITE_P(Transports, Order,
                         ::testing::Combine(::testing::Values("inproc", "shm", transport::chosen_transport(true).name),
                                            ::testing::Values(Shape{3, 4}, Shape{4, 3}), ::testing::Values(Variant{})),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Variants, Order,
                         ::testing::Combine(::testing::Values("shm", transport::chosen_transport(true).name),
                                            ::testing::Values(Shape{3, 4}), ::testing::ValuesIn(variants())),
                         name_of_case);

constexpr Shape two_by_two{2, 2};

/// The first builder unit sleeps after ten MEPs until `enough` was done; everything is built all the same, in order,
/// and what is placed is told where slots wait for it.
void oversleep(protocol::Overrun overrun, bool (*enough)(const Recorder&, Time asleep, Time now, Time slot)) {
    const bool waits = overrun != protocol::Overrun::overlap;
    Config config = config_of(two_by_two, Schedule::barrel_time_slot);
    config.overrun = overrun;
    Recorder recorder{two_by_two.rus, two_by_two.bus};
    const auto medium = transport::make_medium(*transport::find_transport("inproc"), {}).value();
    Crew crew(config, *medium, recorder);
    const Time deadline = crew.now() + 60 * ps_per_s;
    while (crew.ledger.commits < 10) {
        crew.round();
        ASSERT_LT(crew.now(), deadline);
    }
    for (const Time asleep = crew.now(); !enough(recorder, asleep, crew.now(), config.slot_time);) {
        crew.round(two_by_two.rus);
        ASSERT_LT(crew.now(), deadline);
    }
    while (!crew.round())
        ASSERT_LT(crew.now(), deadline);
    EXPECT_EQ(crew.ledger.commits, config.total_meps);
    for (std::uint32_t ru = 0; ru < two_by_two.rus; ++ru) {
        EXPECT_GE(crew.counters(ru).slot_overruns, waits ? 1U : 0U);
        std::int64_t last = -1;
        for (const Step& step : recorder.steps) {
            EXPECT_TRUE(waits || step.what != Step::What::placed);
            if (step.ru != ru || step.what != Step::What::sent) continue;
            EXPECT_TRUE(step.now / config.slot_time > last || crew.counters(ru).unguarded_slots > 0);
            last = step.now / config.slot_time;
        }
        expect_all(recorder, ru, config.total_meps);
    }
}

/// Each RU sent to the sleeper last, and waited for it for two slots and more.
bool all_wait(const Recorder& recorder, Time asleep, Time now, Time slot) {
    std::size_t last[two_by_two.rus] = {none, none};
    for (const Step& step : recorder.steps)
        if (step.what == Step::What::sent) last[step.ru] = step.now + 2 * slot < now ? step.bu : none;
    return now >= asleep + 6 * slot && last[0] == 0 && last[1] == 0;
}

/// Each RU sent to the sleeper, and then to the other builder unit.
bool none_waits(const Recorder& recorder, Time asleep, Time, Time) {
    bool slept[two_by_two.rus] = {}, served[two_by_two.rus] = {};
    for (const Step& step : recorder.steps) {
        if (step.what != Step::What::sent || step.now < asleep) continue;
        served[step.ru] |= step.bu == 1 && slept[step.ru];
        slept[step.ru] |= step.bu == 0;
    }
    return served[0] && served[1];
}

TEST(Overruns, AreCounted) {
    for (const protocol::Overrun overrun : {protocol::Overrun::skip, protocol::Overrun::slip})
        oversleep(overrun, all_wait);
}

TEST(Overruns, HoldUpNobodyWhereSlotsOverlap) {
    oversleep(protocol::Overrun::overlap, none_waits);
}

}  // namespace
}  // namespace incast
