// The adversary itself: that it repeats itself, that it finds what is planted, and that a healthy protocol passes.
#include <algorithm>
#include <ostream>

#include <gtest/gtest.h>

#include "run.h"

namespace incast::adversary {
namespace {

using protocol::Plant;

TEST(Adversary, AHealthyProtocolPasses) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        const Outcome outcome = play(seed, {});
        EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << ": " << outcome.violations.front().what;
    }
}

TEST(Adversary, TheSameSeedGivesTheSameRun) {
    for (const std::uint64_t seed : {3U, 17U, 99U}) {
        const Outcome first = play(seed, {});
        const Outcome second = play(seed, {});
        EXPECT_EQ(first.trace_hash, second.trace_hash);
        EXPECT_EQ(first.marks, second.marks);
        EXPECT_EQ(first.ended, second.ended);
        EXPECT_NE(first.trace_hash, play(seed + 1, {}).trace_hash);
    }
}

TEST(Adversary, PlansAreLargeEnough) {
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
        const Plan plan = make_plan(seed, Plant::none);
        EXPECT_GE(plan.config.nodes.size(), 4U);
        EXPECT_GE(plan.source.total_meps, 200U);
        EXPECT_TRUE(protocol::validate(plan.config).ok());
    }
}

/// Nobody honest is dropped, or waits in vain, and every promise is kept.
TEST(Adversary, ALiarHarmsNobodyElse) {
    for (const Lie lie : {Lie::late, Lie::withheld, Lie::loss, Lie::missing, Lie::grant, Lie::abort}) {
        std::uint64_t told = 0;
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
            const Outcome outcome = play(seed, {.lie = lie});
            EXPECT_TRUE(outcome.violations.empty())
                << "lie " << static_cast<int>(lie) << " seed " << seed << ": " << outcome.violations.front().what;
            const auto lies = outcome.marks.find("lie");
            told += lies == outcome.marks.end() ? 0 : lies->second;
        }
        EXPECT_TRUE(told > 50 || lie == Lie::missing) << "lie " << static_cast<int>(lie);
    }
}

struct Planted {
    const char* name;
    Plant plant;
    std::vector<std::string> rules;  // any of which the bug may break
    Lie lie = Lie::none;             // whom it takes
    friend void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }
};

class Plants : public ::testing::TestWithParam<Planted> {};

/// Most within a few seeds.
TEST_P(Plants, IsFound) {
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        const Outcome outcome = play(seed, {.plant = GetParam().plant, .lie = GetParam().lie});
        const bool seen = std::ranges::any_of(outcome.violations, [](const Violation& violation) {
            return std::ranges::find(GetParam().rules, violation.rule) != GetParam().rules.end();
        });
        if (seen) return;
    }
    FAIL() << "not found in 1000 seeds";
}

INSTANTIATE_TEST_SUITE_P(
    All, Plants,
    ::testing::Values(
        Planted{"no_generation_check", Plant::no_generation_check, {"EB-F6"}},
        Planted{"no_attempt_check", Plant::no_attempt_check, {"EB-F2"}},
        Planted{"early_release", Plant::early_release, {"EB-F1"}},
        Planted{"double_credit", Plant::double_credit, {"EB-C1"}},
        Planted{"no_quarantine", Plant::no_quarantine, {"EB-F3"}},
        Planted{"skipped_commit", Plant::skipped_commit, {"EB-F2"}},
        Planted{"double_commit", Plant::double_commit, {"EB-F2"}},
        Planted{"unconfirmed_missing", Plant::unconfirmed_missing, {"EB-F5"}},
        Planted{"forgotten_reassign", Plant::forgotten_reassign, {"liveness"}},
        Planted{"unmarked_redelivery", Plant::unmarked_redelivery, {"EB-F2"}},
        Planted{"admit_unretained", Plant::admit_unretained, {"EB-C3"}},
        Planted{"stale_incarnation", Plant::stale_incarnation, {"EB-F3", "EB-C1", "EB-F6"}},
        Planted{"unordered_abort_ack", Plant::unordered_abort_ack, {"EB-F3"}},
        Planted{"undecided_reject", Plant::undecided_reject, {"EB-C7"}},
        Planted{"ignored_reject", Plant::ignored_reject, {"EB-C7"}},
        Planted{"wrong_phase_order", Plant::wrong_phase_order, {"EB-C6"}},
        Planted{"early_phase", Plant::early_phase, {"EB-C6"}}, Planted{"open_barrier", Plant::open_barrier, {"EB-C6"}},
        Planted{"hasty_send", Plant::hasty_send, {"EB-C6"}}, Planted{"wrong_builder", Plant::wrong_builder, {"EB-C5"}},
        Planted{"early_reuse", Plant::early_reuse, {"EB-C1"}},
        Planted{"uncredited_send", Plant::uncredited_send, {"EB-C5"}},
        Planted{"uneven_grant", Plant::uneven_grant, {"EB-C1"}},
        Planted{"kept_credits", Plant::kept_credits, {"EB-C5"}}, Planted{"lone_close", Plant::lone_close, {"EB-C8"}},
        Planted{"unfinished_read", Plant::unfinished_read, {"EB-T1"}},
        Planted{"unseen_damage", Plant::unseen_damage, {"EB-T1"}},
        Planted{"believed_late", Plant::believed_late, {"EB-T8"}, Lie::late},
        Planted{"believed_late_in_time", Plant::believed_late, {"EB-T8"}, Lie::withheld},
        Planted{"believed_loss", Plant::believed_loss, {"EB-T8"}, Lie::loss},
        Planted{"believed_missing", Plant::believed_missing, {"EB-F2", "EB-C7"}, Lie::missing},
        Planted{"believed_grant", Plant::believed_grant, {"EB-T8"}, Lie::grant},
        Planted{"believed_abort", Plant::believed_abort, {"EB-T8"}, Lie::abort}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace incast::adversary
