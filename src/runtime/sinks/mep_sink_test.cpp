#include "runtime/sinks/mep_sink.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc.h"
#include "runtime/sources/recorded_files.h"
#include "support/built_run.h"
#include "support/full_disk.h"
#include "wire/mep.h"

namespace incast::sinks {
namespace {

using protocol::MepId;
using Taken = protocol::Sink::Taken;

protocol::Config config_of() {
    protocol::Config config;
    config.run = 42;
    config.nodes = {{protocol::role_em | protocol::role_ru | protocol::role_bu},
                    {protocol::role_ru | protocol::role_bu}};
    // The second RU's ids are below the first one's: files are ordered by id, the config by RU.
    config.sources = {{30, Peer{0}, 8'000}, {7, Peer{1}, 8'000}, {8, Peer{1}, 8'000}};
    config.retention_meps = 8;
    return config;
}

SinkOptions options_of(const std::filesystem::path& folder) {
    SinkOptions options;
    options.kind = Kind::mep;
    options.source.generator.sizes = {
        .distribution = sources::Distribution::exponential, .mean_bytes = 200, .max_bytes = 900};
    options.source.generator.packing = 6;
    options.files.path = folder.string();
    options.node = 3;
    options.incarnation = 2;
    return options;
}

struct Line {
    nlohmann::json json;
    std::vector<std::byte> bytes;  // of the MEP it names
};

std::vector<std::byte> read_bytes(const std::filesystem::path& file, std::uint64_t offset, std::uint64_t size) {
    std::vector<std::byte> bytes(size);
    std::ifstream in(file, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
    EXPECT_EQ(static_cast<std::uint64_t>(in.gcount()), size) << file;
    return bytes;
}

// Reads as docs/formats.md says a reader has to, and holds every line against its bytes.
std::vector<Line> read_manifest(const std::filesystem::path& folder, const std::string& name = "manifest-3-2.jsonl") {
    std::vector<Line> lines;
    std::ifstream in(folder / name);
    const std::string all{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    std::size_t begin = 0;
    for (std::size_t end = all.find('\n'); end != std::string::npos; begin = end + 1, end = all.find('\n', begin)) {
        Line line{nlohmann::json::parse(all.substr(begin, end - begin)), {}};
        const auto& json = line.json;
        line.bytes = read_bytes(folder / json["file"].get<std::string>(), json["offset"], json["bytes"]);
        EXPECT_EQ(base::crc32c(line.bytes), std::stoul(json["crc32c"].get<std::string>(), nullptr, 16));
        const auto mep = wire::MepView::parse(line.bytes);
        EXPECT_TRUE(mep) << (mep ? "" : mep.error().message);
        if (mep) {
            EXPECT_EQ(mep->first_event(), json["first_event"]);
            EXPECT_EQ(mep->n_events(), json["n_events"]);
            EXPECT_EQ(mep->size(), json["n_mfps"]);
            EXPECT_EQ(mep->bytes().size(), json["bytes"]);
            std::map<std::string, std::string> flags;
            for (std::uint32_t index = 0; index < mep->size(); ++index) {
                if (const auto flag = mep->mfp(index).flag(); flag >= wire::SourceFlag::missing_dead) {
                    flags[std::to_string(mep->source(index))] = wire::to_string(flag);
                }
            }
            EXPECT_EQ(json["flags"], nlohmann::json(flags));
        }
        lines.push_back(std::move(line));
    }
    return lines;
}

struct MepSinkTest : testing::Test {
    void open(const SinkOptions& options) {
        auto made = make_sink(options, config);
        ASSERT_TRUE(made) << made.error().message;
        sink = std::move(made).value();
        run = std::make_unique<BuiltRun>(config, options.source);
    }
    // Asks, as a node does, until everything taken so far is durable. The sink's clock is ours; its thread's is not.
    std::vector<MepId> wait_durable(std::size_t count) {
        std::vector<MepId> all;
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (all.size() < count && sink->failure().empty() && std::chrono::steady_clock::now() < give_up) {
            now += 100 * ps_per_us;
            MepId some[3];
            const std::size_t told = sink->durable(now, some);
            all.insert(all.end(), some, some + told);
            ::poll(nullptr, 0, 1);
        }
        return all;
    }

    // How many the sink took.
    std::size_t take_until_busy() {
        for (std::size_t taken = 0;; ++taken) {
            if (!refused) {
                refused = *run->next();
            }
            if (sink->take(now, refused->build()) == Taken::busy) {
                return taken;
            }
            refused.reset();
        }
    }

    sources::TemporaryFolder folder;
    protocol::Config config = config_of();
    std::unique_ptr<BuiltRun> run;
    std::optional<LooseMep> refused;
    std::unique_ptr<RuntimeSink> sink;
    Time now = 1;
};

TEST_F(MepSinkTest, WritesWhatWasBuilt) {
    open(options_of(folder.path()));
    std::vector<LooseMep> built;
    for (int mep = 0; mep < 20; ++mep) {
        built.push_back(*run->next());
        built.back().mep.attempt = static_cast<std::uint32_t>(mep % 3);
        built.back().mep.redelivered = mep == 5;
        ASSERT_EQ(sink->take(now, built.back().build()), Taken::pending);
    }
    const auto durable = wait_durable(20);
    ASSERT_EQ(durable.size(), 20U);
    const auto lines = read_manifest(folder.path());
    ASSERT_EQ(lines.size(), 20U);
    std::uint64_t offset = 0;
    for (std::size_t index = 0; index < 20; ++index) {
        const auto& json = lines[index].json;
        EXPECT_EQ(durable[index], index);
        EXPECT_EQ(json["mep"], index);
        EXPECT_EQ(json["file"], "3-2-0.mep");
        EXPECT_EQ(json["offset"], offset);
        EXPECT_EQ(json["attempt"], index % 3);
        EXPECT_EQ(json["redelivered"], index == 5);
        offset += lines[index].bytes.size();
        const auto mep = wire::MepView::parse(lines[index].bytes).value();
        const std::vector<std::size_t> order{1, 2, 0};  // by source id: 7, 8, 30
        for (std::uint32_t source = 0; source < 3; ++source) {
            const Bytes mfp = mep.mfp(source).bytes();
            EXPECT_EQ(std::vector<std::byte>(mfp.begin(), mfp.end()), built[index].parts[order[source]].body);
        }
    }
    EXPECT_EQ(std::filesystem::file_size(folder.path() / "3-2-0.mep"), offset);
    EXPECT_EQ(sink->stats().meps, 20U);
    EXPECT_EQ(sink->stats().service_ns.count(), 20U);
    EXPECT_EQ(sink->stats().verify_errors, 0U);
}

TEST_F(MepSinkTest, EB_F5_MissingSourcesBecomePhantomsThatSayWhy) {
    open(options_of(folder.path()));
    LooseMep loose = *run->next();
    loose.lose(1, wire::SourceFlag::missing_dead);
    loose.lose(0, wire::SourceFlag::missing_unreachable);
    ASSERT_EQ(sink->take(now, loose.build()), Taken::pending);
    ASSERT_EQ(wait_durable(1).size(), 1U);
    const auto lines = read_manifest(folder.path());
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0].json["flags"], (nlohmann::json{{"7", "missing-dead"}, {"30", "missing-unreachable"}}));
    const auto mep = wire::MepView::parse(lines[0].bytes).value();
    EXPECT_TRUE(mep.mfp(0).phantom());
    EXPECT_FALSE(mep.mfp(1).phantom());
    EXPECT_TRUE(mep.mfp(2).phantom());
    EXPECT_EQ(mep.n_events(), 6U);
}

// The types alone differ; the manifest says the same, and that they do.
TEST_F(MepSinkTest, MissingFragmentsMayBeErrorBanksOfLhcb) {
    SinkOptions options = options_of(folder.path() / "own");
    SinkOptions lhcb = options_of(folder.path() / "lhcb");
    lhcb.missing = Missing::lhcb;
    for (const SinkOptions& some : {options, lhcb}) {
        open(some);
        LooseMep complete = *run->next();
        ASSERT_EQ(sink->take(now, complete.build()), Taken::pending);
        LooseMep loose = *run->next();
        loose.lose(0, wire::SourceFlag::missing_unreachable);
        loose.parts[1].body.resize(wire::mfp_prefix_bytes(6, false));
        loose.parts[1].body.resize(wire::truncate_mfp(loose.parts[1].body).value());
        loose.parts[1].flag = wire::SourceFlag::truncated;
        wire::store<std::uint64_t>(loose.parts[2].body, 8, 1'000'000);
        ASSERT_EQ(sink->take(now, loose.build()), Taken::pending);
        ASSERT_EQ(wait_durable(2).size(), 2U);
        EXPECT_EQ(sink->stats().incomplete_meps, 1U);
    }
    const auto lines_of = [&](const char* name) {
        std::ifstream in(folder.path() / name / "manifest-3-2.jsonl");
        std::vector<nlohmann::json> lines;
        for (std::string text; std::getline(in, text);) {
            lines.push_back(nlohmann::json::parse(text));
        }
        return lines;
    };
    const auto own = lines_of("own");
    auto other = lines_of("lhcb");
    ASSERT_EQ(own.size(), 2U);
    ASSERT_EQ(other.size(), 2U);
    for (nlohmann::json& line : other) {
        EXPECT_EQ(line["missing"], "lhcb");
        line.erase("missing");
    }
    EXPECT_EQ(other[0], own[0]);
    EXPECT_EQ(own[1]["flags"], (nlohmann::json{{"30", "missing-unreachable"}, {"7", "truncated"}, {"8", "desync"}}));
    EXPECT_EQ(other[1]["flags"], own[1]["flags"]);
    const std::uint64_t size = own[1]["bytes"];
    auto bytes = read_bytes(folder.path() / "own" / "3-2-0.mep", own[1]["offset"], size);
    const auto mep = wire::MepView::parse(bytes).value();
    for (std::uint32_t index = 0; index < mep.size(); ++index) {
        wire::missing_to_error_banks(std::span(bytes).subspan(mep.offset(index)));
    }
    EXPECT_EQ(bytes, read_bytes(folder.path() / "lhcb" / "3-2-0.mep", own[1]["offset"], size));
    const wire::MfpView cut = mep.mfp(0);
    EXPECT_EQ(cut.type(5), 93) << "7: its last fragment is truncated";
    EXPECT_EQ(mep.mfp(1).type(0), 96) << "8: other events";
    EXPECT_EQ(mep.mfp(2).type(0), 92) << "30: missing";
}

TEST_F(MepSinkTest, DamagedAndMisplacedMfpsAreNotWritten) {
    open(options_of(folder.path()));
    LooseMep loose = *run->next();
    loose.parts[1].body[0] ^= std::byte{0xff};
    wire::store<std::uint64_t>(loose.parts[2].body, 8, 1'000'000);
    ASSERT_EQ(sink->take(now, loose.build()), Taken::pending);
    ASSERT_EQ(wait_durable(1).size(), 1U);
    const auto lines = read_manifest(folder.path());
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0].json["flags"], (nlohmann::json{{"7", "bad-checksum"}, {"8", "desync"}}));
    EXPECT_EQ(sink->stats().verify_errors, 2U);
    EXPECT_NE(sink->stats().first_errors[1].find("MEP 0 source 8: holds events 1000000 + 6"), std::string::npos)
        << sink->stats().first_errors[1];
}

TEST_F(MepSinkTest, RollsFilesAtTheirSize) {
    SinkOptions options = options_of(folder.path());
    options.files.roll_bytes = 10'000;
    open(options);
    for (int mep = 0; mep < 30; ++mep) {
        LooseMep loose = *run->next();
        ASSERT_EQ(sink->take(now, loose.build()), Taken::pending);
        now += ps_per_ms;
    }
    ASSERT_EQ(wait_durable(30).size(), 30U);
    std::map<std::string, std::uint64_t> end;
    for (const Line& line : read_manifest(folder.path())) {
        std::uint64_t& expected = end[line.json["file"]];
        EXPECT_EQ(line.json["offset"], expected);
        EXPECT_LT(expected, 10'000U);
        expected += line.bytes.size();
    }
    EXPECT_GT(end.size(), 5U);
    for (std::size_t number = 0; number < end.size(); ++number) {
        EXPECT_TRUE(end.contains("3-2-" + std::to_string(number) + ".mep"));
    }
}

TEST_F(MepSinkTest, CommitsByTimeOrByBytes) {
    SinkOptions options = options_of(folder.path());
    options.files.commit_interval = 5 * ps_per_ms;
    options.files.commit_bytes = 20'000;
    open(options);
    EXPECT_EQ(sink->next_deadline(), time_never);
    now = 1'000;
    LooseMep loose = *run->next();
    ASSERT_EQ(sink->take(now, loose.build()), Taken::pending);
    EXPECT_EQ(sink->next_deadline(), now + 5 * ps_per_ms);
    EXPECT_EQ(read_manifest(folder.path()).size(), 0U);
    MepId some[3];
    EXPECT_EQ(sink->durable(now + 5 * ps_per_ms - 1, some), 0U);
    EXPECT_EQ(sink->next_deadline(), now + 5 * ps_per_ms) << "not begun yet";
    EXPECT_EQ(sink->durable(now + 5 * ps_per_ms, some), 0U);
    EXPECT_GT(sink->next_deadline(), now + 5 * ps_per_ms) << "begun";
    now += 5 * ps_per_ms;
    ASSERT_EQ(wait_durable(1).size(), 1U);
    EXPECT_EQ(sink->next_deadline(), time_never);

    const Time before = sink->next_deadline();
    std::uint64_t bytes = 0;
    std::size_t taken = 0;
    while (bytes < 20'000) {
        loose = *run->next();
        bytes += loose.parts[0].body.size() + loose.parts[1].body.size() + loose.parts[2].body.size();
        ASSERT_EQ(sink->take(now, loose.build()), Taken::pending);
        ++taken;
    }
    EXPECT_NE(sink->next_deadline(), before);
    EXPECT_EQ(wait_durable(taken).size(), taken);
}

TEST_F(MepSinkTest, IsBusyWhileTooMuchIsNotDurable) {
    SinkOptions options = options_of(folder.path());
    options.files.most_uncommitted_bytes = 30'000;
    open(options);
    const std::size_t taken = take_until_busy();
    EXPECT_EQ(sink->failure(), "");
    EXPECT_LT(sink->next_deadline(), time_never);
    EXPECT_EQ(wait_durable(taken).size(), taken);
    EXPECT_EQ(sink->take(now, refused->build()), Taken::pending);
    EXPECT_EQ(wait_durable(1).size(), 1U);
    EXPECT_EQ(read_manifest(folder.path()).size(), taken + 1);
}

TEST_F(MepSinkTest, ErrorsNameThePath) {
    const auto error_of = [&](const SinkOptions& options) {
        const auto made = make_sink(options, config);
        return made ? std::string() : made.error().message;
    };
    SinkOptions options = options_of(folder.path());
    open(options);
    EXPECT_NE(error_of(options).find("manifest-3-2.jsonl: holds another run"), std::string::npos) << error_of(options);
    ++options.incarnation;
    EXPECT_EQ(error_of(options), "") << "a later incarnation has files of its own";

    options.files.path = (folder.path() / "manifest-3-2.jsonl" / "sub").string();
    EXPECT_NE(error_of(options).find("cannot make the folder"), std::string::npos) << error_of(options);

    options = options_of(folder.path() / "phantom");
    options.phantom_bodies = true;
    EXPECT_NE(error_of(options).find("moves no payload"), std::string::npos) << error_of(options);
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "phantom"));

    config.sources[2].id = 30;
    options = options_of(folder.path() / "twice");
    EXPECT_NE(error_of(options).find("source id 30 occurs twice"), std::string::npos) << error_of(options);
}

// Runs `body` in a child process, with the write end of a pipe; returns what it wrote there until it ended.
template <class Body>
std::string in_child(Body body, int* status) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(ends[0]);
        body(ends[1]);
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    char some[4096];
    for (ssize_t n = 0; (n = ::read(ends[0], some, sizeof some)) > 0;) {
        said.append(some, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    EXPECT_EQ(::waitpid(child, status, 0), child);
    return said;
}

// A file size limit stands for a full disk: the write fails in the middle of a MEP.
TEST_F(MepSinkTest, AFullDiskStopsTheSinkAndLosesNothingThatWasConfirmed) {
    int status = 0;
    const std::string said = in_child(
        [&](int out) {
            std::signal(SIGXFSZ, SIG_IGN);
            const rlimit limit{50'000, 50'000};
            ::setrlimit(RLIMIT_FSIZE, &limit);
            open(options_of(folder.path()));
            std::size_t confirmed = 0;
            while (sink->failure().empty()) {
                LooseMep loose = *run->next();
                if (sink->take(now, loose.build()) == Taken::pending && wait_durable(1).size() == 1) {
                    ++confirmed;
                }
            }
            LooseMep loose = *run->next();
            const bool still_busy = sink->take(now, loose.build()) == Taken::busy;
            const std::string line =
                sink->failure() + "|" + std::to_string(confirmed) + "|" + (still_busy ? "busy" : "takes");
            EXPECT_GT(::write(out, line.data(), line.size()), 0);
        },
        &status);
    EXPECT_EQ(status, 0);
    EXPECT_NE(said.find("3-2-0.mep: cannot write: File too large"), std::string::npos) << said;
    const auto lines = read_manifest(folder.path());
    EXPECT_GT(lines.size(), 5U);
    EXPECT_NE(said.find("|" + std::to_string(lines.size()) + "|busy"), std::string::npos)
        << said << ", lines " << lines.size();
    EXPECT_EQ(std::filesystem::file_size(folder.path() / "3-2-0.mep"),
              lines.back().json["offset"].get<std::uint64_t>() + lines.back().json["bytes"].get<std::uint64_t>())
        << "nothing of the torn MEP is there";
}

TEST_F(MepSinkTest, AFullDiskMayBeWaitedForAndNothingIsLost) {
    SinkOptions options = options_of(folder.path());
    options.files.on_full = OnFull::wait;
    open(options);
    std::size_t taken = 0;
    for (const rlim_t room : {50'000U, 80'000U}) {
        const FullDisk disk(room);
        taken += take_until_busy();
        EXPECT_EQ(sink->failure(), "");
        const std::string file = (folder.path() / "3-2-0.mep").string();
        EXPECT_EQ(sink->shortage(), "sink mep: " + file + ": cannot write: File too large");
        EXPECT_LT(sink->next_deadline(), time_never) << "it is tried again";
        now += ps_per_s;
    }
    ASSERT_EQ(sink->take(now, refused->build()), Taken::pending);
    EXPECT_EQ(sink->shortage(), "");
    EXPECT_EQ(wait_durable(taken + 1).size(), taken + 1);
    const auto lines = read_manifest(folder.path());
    ASSERT_EQ(lines.size(), taken + 1);
    for (std::size_t index = 0; index < lines.size(); ++index) {
        EXPECT_EQ(lines[index].json["mep"], index);
    }
    sink->close();
    EXPECT_EQ(sink->failure(), "");
}

// The bytes of MEPs have room, and their lines have not.
TEST_F(MepSinkTest, AManifestWithoutRoomIsWaitedForToo) {
    SinkOptions options = options_of(folder.path());
    options.files.on_full = OnFull::wait;
    options.files.roll_bytes = 1;
    open(options);
    std::optional<FullDisk> disk(20'000U);
    std::size_t taken = 0;
    while (sink->shortage().empty() && taken < 1000) {
        LooseMep loose = *run->next();
        ASSERT_EQ(sink->take(now, loose.build()), Taken::pending);
        ++taken;
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        for (bool told = false; !told && sink->shortage().empty() && std::chrono::steady_clock::now() < give_up;) {
            MepId some[3];
            told = sink->durable(now += 100 * ps_per_us, some) > 0;
        }
    }
    EXPECT_NE(sink->shortage().find("manifest-3-2.jsonl: cannot write: File too large"), std::string::npos);
    EXPECT_EQ(read_manifest(folder.path()).size(), taken - 1) << "no part of a line";
    disk.reset();
    EXPECT_EQ(wait_durable(1).size(), 1U);
    EXPECT_EQ(read_manifest(folder.path()).size(), taken);
    EXPECT_EQ(sink->shortage(), "");
}

TEST_F(MepSinkTest, ADiskThatStaysFullIsSaidAtTheEndWithWhatIsThere) {
    SinkOptions options = options_of(folder.path());
    options.files.on_full = OnFull::wait;
    open(options);
    const FullDisk disk(50'000U);
    const std::size_t taken = take_until_busy();
    EXPECT_EQ(wait_durable(taken).size(), taken);
    sink->close();
    EXPECT_NE(sink->failure().find("cannot write: File too large, and the run is over; " + std::to_string(taken) +
                                   " MEPs with " + std::to_string(6 * taken) + " events are in its files"),
              std::string::npos)
        << sink->failure();
    EXPECT_EQ(read_manifest(folder.path()).size(), taken);
}

TEST_F(MepSinkTest, WhatWasTakenBeforeTheDiskWasFullIsKept) {
    SinkOptions options = options_of(folder.path());
    options.files.commit_interval = ps_per_s;
    open(options);
    std::size_t taken = 0;
    {
        const FullDisk disk(50'000U);
        taken = take_until_busy();
        EXPECT_EQ(sink->failure(), "") << "what is whole is committed first";
        EXPECT_EQ(wait_durable(taken).size(), taken);
    }
    EXPECT_NE(sink->failure().find("File too large; " + std::to_string(taken) + " MEPs"), std::string::npos)
        << sink->failure();
    EXPECT_EQ(read_manifest(folder.path()).size(), taken);
    EXPECT_EQ(sink->take(now, refused->build()), Taken::busy) << "there is room again, and it has failed";
}

// EB-F2 after kill -9, whenever it strikes: what was confirmed is in the manifest, and every line is true
// (read_manifest checks).
TEST_F(MepSinkTest, EB_F2_AfterAKillEverythingConfirmedIsThere) {
    for (const std::size_t after : {0U, 1U, 7U, 40U}) {
        const sources::TemporaryFolder own;
        int status = 0;
        const std::string said = in_child(
            [&](int out) {
                SinkOptions options = options_of(own.path());
                options.files.commit_interval = ps_per_ms;
                options.files.roll_bytes = 20'000;
                open(options);
                std::size_t confirmed = 0;
                for (;;) {
                    LooseMep loose = *run->next();
                    sink->take(now += 300 * ps_per_us, loose.build());
                    MepId some[64];
                    const std::size_t told = sink->durable(now, some);
                    for (std::size_t index = 0; index < told; ++index) {
                        const std::string line = std::to_string(some[index]) + "\n";
                        EXPECT_GT(::write(out, line.data(), line.size()), 0);
                    }
                    confirmed += told;
                    if (confirmed >= after) {
                        ::kill(::getpid(), SIGKILL);
                    }
                }
            },
            &status);
        ASSERT_TRUE(WIFSIGNALED(status));
        std::set<MepId> committed;
        for (const Line& line : read_manifest(own.path())) {
            EXPECT_TRUE(committed.insert(line.json["mep"].get<MepId>()).second);
        }
        std::size_t confirmed = 0;
        for (std::size_t begin = 0, end = said.find('\n'); end != std::string::npos;
             begin = end + 1, end = said.find('\n', begin)) {
            EXPECT_TRUE(committed.contains(std::stoull(said.substr(begin, end - begin))));
            ++confirmed;
        }
        EXPECT_GE(confirmed, after);
    }
}

}  // namespace
}  // namespace incast::sinks
