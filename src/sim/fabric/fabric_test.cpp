#include "sim/fabric/fabric.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "sim/packet/network.h"

namespace incast::sim::fabric {
namespace {

using packet::gbit_per_s;
using packet::SwitchKind;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* small = R"(
[fabric]
name = "small"
[hosts.nic]
mtu = "2048B"
header = "82B"
transmit_limit = "13.4Gb/s"
[switches.leaf]
kind = "shared-buffer"
latency = "500ns"
buffer = "16MiB"
alpha_ingress = "1/8"
alpha_egress = "2"
[switches.leaf.ecn]
classes = [0, 3]
kmin = "100KiB"
kmax = "400KiB"
pmax = 0.2
[links.cable]
rate = "25Gb/s"
length_m = 3
[flow]
ack_packets = 16
retransmit_timeout = "4ms"
dcqcn = true
[topology]
hosts = 4
)";

std::string with(std::string text, const std::string& line, const std::string& instead) {
    const std::size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << line;
    return text.replace(at, line.size(), instead);
}

TEST(Fabric, ReadsWhatAFileSays) {
    const Result<Fabric> read = parse(small, "small.toml");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->name, "small");
    EXPECT_EQ(read->topology.host_count(), 4U);
    ASSERT_EQ(read->topology.cables.size(), 4U);
    EXPECT_EQ(read->topology.cables[0].rate, gbit_per_s(25));
    EXPECT_EQ(read->topology.cables[0].propagation, 15 * ps_per_ns);
    const packet::HostSettings& host = read->settings.hosts.at(0);
    EXPECT_EQ(host.mtu_bytes, 2048U);
    EXPECT_EQ(host.transmit_limit, packet::mbit_per_s(13400));
    const packet::SwitchSettings& leaf = read->settings.switches.at(0);
    EXPECT_EQ(leaf.kind, SwitchKind::shared_buffer);
    EXPECT_EQ(leaf.latency, 500 * ps_per_ns);
    EXPECT_EQ(leaf.alpha_ingress_q8, 32U);
    EXPECT_EQ(leaf.alpha_egress_q8, 512U);
    EXPECT_EQ(leaf.ecn.classes, 0b1001);
    EXPECT_EQ(leaf.ecn.kmin_bytes, 100U << 10U);
    EXPECT_EQ(leaf.ecn.pmax_per_million, 200'000U);
    EXPECT_TRUE(read->flow.dcqcn);
    EXPECT_EQ(read->flow.retransmit_timeout, 4 * ps_per_ms);
}

TEST(Fabric, ReadsHowAdaptersCutAndSwitchesMark) {
    const Result<Fabric> usual = parse(small, "small.toml");
    ASSERT_TRUE(usual) << usual.error().message;
    EXPECT_FALSE(usual->settings.switches.at(0).ecn.at_departure);
    EXPECT_EQ(usual->settings.dcqcn.cut_period, 0);
    const std::string marking = with(small, "pmax = 0.2", "pmax = 0.2\nmark_at = \"departure\"");
    const Result<Fabric> read = parse(marking + "[dcqcn]\ncut_period = \"4us\"\n", "small.toml");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(read->settings.switches.at(0).ecn.at_departure);
    EXPECT_EQ(read->settings.dcqcn.cut_period, 4 * ps_per_us);
}

TEST(Fabric, GroupsOfAnExplicitTopologyAreJoinedEachToEach) {
    const Result<Fabric> read = parse(R"(
[fabric]
name = "two"
[hosts.nic]
[switches.s]
kind = "credit"
[links.fast]
rate = "100Gb/s"
[links.slow]
rate = "10Gb/s"
delay = "1us"
[topology]
kind = "explicit"
[[topology.hosts]]
name = "h"
count = 3
[[topology.switches]]
name = "a"
[[topology.switches]]
name = "b"
[[topology.cables]]
from = "h"
to = "a"
link = "fast"
[[topology.cables]]
from = "a"
to = "b"
link = "slow"
count = 2
from_ignores_pause = true
)",
                                      "two.toml");
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_EQ(read->topology.nodes.size(), 5U);
    EXPECT_EQ(read->topology.nodes[2].name, "h2");
    ASSERT_EQ(read->topology.cables.size(), 5U);
    EXPECT_EQ(read->topology.cables[4].rate, gbit_per_s(10));
    EXPECT_EQ(read->topology.cables[4].propagation, ps_per_us);
    EXPECT_TRUE(read->topology.cables[4].one_ignores_pause);
    EXPECT_FALSE(read->topology.cables[4].two_ignores_pause);
}

TEST(Fabric, LanesOfABrokenOutPortHaveTheirShareOfItsRate) {
    const std::string text = with(small, "length_m = 3", "length_m = 3\nbreakout = 4");
    const Result<Fabric> read = parse(text, "small.toml");
    ASSERT_TRUE(read);
    ASSERT_EQ(read->topology.cables.size(), 4U);
    for (const auto& cable : read->topology.cables)
        EXPECT_EQ(cable.rate.bits_per_s, 6'250'000'000U);
}

TEST(Fabric, PausesMayEndByThemselves) {
    EXPECT_EQ(parse(small, "small.toml")->settings.switches[0].pfc.quanta, 0U);
    const std::string pfc = "[switches.leaf.pfc]\nclasses = [0]\nquanta = 65535\nrefresh = false\n[links.cable]";
    const Result<Fabric> read = parse(with(small, "[links.cable]", pfc), "small.toml");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->settings.switches[0].pfc.quanta, 65535U);
    EXPECT_FALSE(read->settings.switches[0].pfc.refresh);
}

TEST(Fabric, LinksMayRepeatWhatIsNotAccepted) {
    std::string text = R"(
[fabric]
name = "rapid"
[hosts.nic]
[switches.s]
kind = "credit"
receiver_controlled = true
[links.x4]
rate = "16Gb/s"
repeats = true
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 2
spines = 1
)";
    const Result<Fabric> read = parse(text, "rapid.toml");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(read->settings.switches[0].receiver_controlled);
    ASSERT_EQ(read->topology.cables.size(), 6U);
    for (const auto& cable : read->topology.cables)
        EXPECT_TRUE(cable.repeats);
    EXPECT_THAT(parse(with(text, "repeats = true\n", ""), "rapid.toml").error().message,
                HasSubstr("is receiver-controlled, so the link has to repeat"));
}

TEST(Fabric, AFlappingCableIsAListOfFaults) {
    using packet::Fault;
    const std::string faults = R"(
[[faults]]
at = "1ms"
cable = 2
what = "flap"
down_for = "100us"
period = "1ms"
times = 3
[[faults]]
at = "2050us"
cable = 0
what = "corrupt"
share = 0.001
)";
    const Result<Fabric> read = parse(small + faults, "small.toml");
    ASSERT_TRUE(read) << read.error().message;
    const std::vector<Fault>& found = read->settings.faults;
    ASSERT_EQ(found.size(), 7U);
    const std::vector<Time> times{1000, 1100, 2000, 2050, 2100, 3000, 3100};
    for (std::size_t index = 0; index < found.size(); ++index)
        EXPECT_EQ(found[index].at, times[index] * ps_per_us) << index;
    EXPECT_EQ(found[2].what, Fault::What::down);
    EXPECT_EQ(found[3].what, Fault::What::corrupt);
    EXPECT_EQ(found[3].per_million, 1000U);
    EXPECT_EQ(found[4].what, Fault::What::up);
    EXPECT_EQ(found[4].cable, 2U);
}

struct Bad {
    const char* line;
    const char* instead;
    const char* where;
    const char* what;
};

class BadFabric : public ::testing::TestWithParam<Bad> {};

TEST_P(BadFabric, IsOneClearLine) {
    const Result<Fabric> read = parse(with(small, GetParam().line, GetParam().instead), "small.toml");
    ASSERT_FALSE(read);
    const std::string& message = read.error().message;
    EXPECT_THAT(message, StartsWith(std::string("small.toml") + GetParam().where));
    EXPECT_THAT(message, HasSubstr(GetParam().what));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadFabric,
    ::testing::Values(
        Bad{"rate = \"25Gb/s\"", "rate = 25",
            ":20: ", "links.cable.rate = 25: not allowed; allowed: a rate with its unit"},
        Bad{"rate = \"25Gb/s\"", "rate = \"25\"",
            ":20: ", "links.cable.rate = \"25\": not allowed; allowed: a rate with"},
        Bad{"rate = \"25Gb/s\"\n", "", ":19: ", "links.cable.rate: missing"},
        Bad{"mtu = \"2048B\"", "mut = \"2048B\"", ":5: ", "hosts.nic.mut: there is no such key; known here: ack,"},
        Bad{"mtu = \"2048B\"", "mtu = \"10B\"",
            ":5: ", "hosts.nic.mtu = \"10B\": not allowed; allowed: a size with its unit"},
        Bad{"latency = \"500ns\"", "latency = 500",
            ":10: ", "switches.leaf.latency = 500: not allowed; allowed: a time"},
        Bad{"kind = \"shared-buffer\"", "kind = \"shared\"",
            ":9: ", "allowed: shared-buffer, credit, input-fifo, deep-buffer"},
        Bad{"alpha_egress = \"2\"", "alpha_egress = \"0\"",
            ":13: ", "switches.leaf.alpha_egress: must be in 1/256..256"},
        Bad{"alpha_ingress = \"1/8\"", "alpha_ingress = \"1/8x\"", ":12: ", "alpha_ingress: must be in 1/256..256"},
        Bad{"alpha_ingress = \"1/8\"", "alpha_ingress = \"one/8\"", ":12: ", "alpha_ingress: must be in 1/256..256"},
        Bad{"classes = [0, 3]", "classes = [0, 8]", ":15: ", "switches.leaf.ecn.classes = (a list): not allowed"},
        Bad{"kmax = \"400KiB\"", "kmax = \"1KiB\"", ":17: ", "switches.leaf.ecn.kmax: is less than kmin"},
        Bad{"pmax = 0.2", "mark_at = \"exit\"",
            ":18: ", "mark_at = \"exit\": not allowed; allowed: arrival, departure"},
        Bad{"hosts = 4", "hosts = 0", ":27: ", "topology.hosts = 0: not allowed; allowed: a whole number in 1.."},
        Bad{"hosts = 4", "hosts = 4\nhost = \"nik\"",
            ":28: ", "topology.host: there is no 'nik'; the kinds of [hosts.NAME] are: nic"},
        Bad{"hosts = 4", "hosts = = 4", ":27: ", ""}, Bad{"[topology]\nhosts = 4\n", "", "", "topology: missing"},
        Bad{"[fabric]\nname = \"small\"\n", "", "", "fabric.name: missing"},
        Bad{"hosts = 4", "hosts = 4\n[[faults]]\nat = \"1ms\"\ncable = 4\n",
            ":30: ", "faults[0].cable = 4: not allowed"},
        Bad{"hosts = 4", "hosts = 4\n[[faults]]\ncable = 1\nwhat = \"flap\"\ndown_for = \"2ms\"\nperiod = \"1ms\"\n",
            ":32: ", "faults[0].period: must be longer than down_for"},
        Bad{"length_m = 3", "length_m = 3\nbreakout = 0", ":22: ", "links.cable.breakout = 0: not allowed; allowed"},
        Bad{"length_m = 3", "length_m = 3\nrepeats = true", ": ", "a link that repeats, at 'switch'"},
        Bad{"[hosts.nic]", "[hosts.nic]\ntrain_packets = 4", ": ", "train"}));

/// What only the whole network shows.
TEST(BadNetwork, UnconnectedHostsAndUnreachableDestinationsAreNamed) {
    const std::string two = R"(
[fabric]
name = "two"
[hosts.nic]
[switches.s]
kind = "credit"
[links.l]
rate = "10Gb/s"
[topology]
kind = "explicit"
[[topology.hosts]]
name = "left"
[[topology.hosts]]
name = "right"
[[topology.switches]]
name = "s"
[[topology.switches]]
name = "t"
[[topology.cables]]
from = "left"
to = "s"
)";
    EXPECT_THAT(parse(two, "two.toml").error().message, HasSubstr("right"));
    const std::string apart = two + "[[topology.cables]]\nfrom = \"right\"\nto = \"t\"\n";
    const std::string message = parse(apart, "two.toml").error().message;
    EXPECT_THAT(message, StartsWith("two.toml: "));
    EXPECT_THAT(message, HasSubstr("cannot reach"));
    EXPECT_TRUE(parse(apart + "[[topology.cables]]\nfrom = \"s\"\nto = \"t\"\n", "two.toml"));
    EXPECT_THAT(parse(apart + "[[topology.cables]]\nfrom = \"s\"\nto = \"u\"\n", "two.toml").error().message,
                HasSubstr("topology.cables[2].to: no host or switch is called 'u'"));
}

/// A group of several and a single one may make the same name.
TEST(BadNetwork, EveryHostAndSwitchHasANameOfItsOwn) {
    const auto message = [](const std::string& kinds) {
        return parse(
                   "[fabric]\nname = \"names\"\n[hosts.nic]\n[switches.s]\nkind = \"credit\"\n[links.l]\n"
                   "rate = \"10Gb/s\"\n[topology]\nkind = \"explicit\"\n" +
                       kinds,
                   "names.toml")
            .error()
            .message;
    };
    EXPECT_THAT(message("[[topology.hosts]]\nname = \"a1\"\n[[topology.hosts]]\nname = \"a\"\ncount = 3\n"),
                HasSubstr("topology.hosts[1].name: 'a' makes a second 'a1'"));
    EXPECT_THAT(message("[[topology.hosts]]\nname = \"x0\"\n[[topology.switches]]\nname = \"x\"\ncount = 2\n"),
                HasSubstr("topology.switches[0].name: 'x' makes a second 'x0'"));
}

/// Groups of any names and sizes, all joined to one switch: refused exactly if a group or a node is there twice.
TEST(BadNetwork, OfRandomGroupsThoseThatMeetAreRefused) {
    constexpr std::array names{"a", "a1", "a-1", "a10", "a[1]", "b"};
    base::Prng prng(1);
    unsigned refused = 0;
    constexpr unsigned draws = 200;
    for (unsigned draw = 0; draw < draws; ++draw) {
        std::string groups;
        std::string cables;
        std::set<std::string> drawn;
        std::set<std::string> taken;
        bool twice = false;
        for (unsigned group = 0; group < 3; ++group) {
            const std::string name = names.at(prng.below(names.size()));
            const std::uint64_t count = 1 + prng.below(12);
            twice |= !drawn.insert(name).second;
            for (std::uint64_t index = 0; index < count; ++index) {
                std::string own = name;
                if (count > 1) own += std::to_string(index);
                twice |= !taken.insert(own).second;
            }
            groups.append("[[topology.hosts]]\nname = \"").append(name).append("\"\ncount = ");
            groups.append(std::to_string(count)).append("\n");
            cables.append("[[topology.cables]]\nfrom = \"").append(name).append("\"\nto = \"s\"\n");
        }
        const std::string text =
            "[fabric]\nname = \"names\"\n[hosts.nic]\n[switches.s]\nkind = \"credit\"\n[links.l]\n"
            "rate = \"10Gb/s\"\n[topology]\nkind = \"explicit\"\n" +
            groups + "[[topology.switches]]\nname = \"s\"\n" + cables;
        const auto found = parse(text, "names.toml");
        EXPECT_EQ(found.ok(), !twice) << (found.ok() ? groups : found.error().message);
        refused += found.ok() ? 0 : 1;
    }
    EXPECT_GT(refused, draws / 10);
    EXPECT_LT(refused, draws - draws / 10);
}

TEST(Fabric, AFileThatIsNotThereIsNamed) {
    EXPECT_THAT(read("no/such.toml").error().message, EndsWith("no/such.toml: cannot be read"));
}

// --- the files that are shipped

std::vector<std::filesystem::path> shipped() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(INCAST_FABRICS)) {
        if (entry.path().extension() == ".toml") files.push_back(entry.path());
    }
    std::ranges::sort(files);
    return files;
}

class Shipped : public ::testing::TestWithParam<std::filesystem::path> {};

/// A queue pair can be opened, and bytes get from the first host to the last one.
TEST_P(Shipped, CarriesAMessageOverItsLongestWay) {
    const Result<Fabric> read = fabric::read(GetParam());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->name, GetParam().stem().string());
    auto network = packet::Network::make(read->topology, read->settings);
    ASSERT_TRUE(network) << network.error().message;
    packet::FlowSettings flow = read->flow;
    flow.source = 0;
    flow.destination = read->topology.host_count() - 1;
    const auto opened = (*network)->open(flow);
    ASSERT_TRUE(opened) << opened.error().message;
    (*network)->post(*opened, 100'000, 7);
    packet::Outcome outcome;
    ASSERT_TRUE((*network)->advance_to_outcome(100 * ps_per_ms));
    ASSERT_TRUE((*network)->take_outcome(outcome));
    EXPECT_EQ(outcome.what, packet::Outcome::What::delivered);
    EXPECT_EQ(outcome.bytes, 100'000U);
}

/// Every value says where it comes from.
TEST_P(Shipped, NamesTheSourceOfEveryValue) {
    static const std::set<std::string> names{"name",      "description",   "host",   "switch", "link",
                                             "leaf",      "spine",         "card",   "fabric", "host_link",
                                             "port_link", "internal_link", "uplink", "from",   "to"};
    static const std::regex assignment(R"(^([a-z_]+) = ("[^"]*"|\[[^\]]*\]|[^ #]+)( *# (.*))?$)");
    std::ifstream in(GetParam());
    std::string table;
    int values = 0;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with('[')) table = line;
        std::smatch parts;
        if (!std::regex_match(line, parts, assignment)) continue;
        if (names.contains(parts[1]) || (parts[1] == "kind" && table == "[topology]")) continue;
        ++values;
        EXPECT_GT(parts[4].length(), 3) << table << " " << line << ": no source";
    }
    EXPECT_GT(values, 5);
}

INSTANTIATE_TEST_SUITE_P(All, Shipped, ::testing::ValuesIn(shipped()), [](const auto& shipped_file) {
    std::string name = shipped_file.param.stem().string();
    std::ranges::replace(name, '-', '_');
    return name;
});

}  // namespace
}  // namespace incast::sim::fabric
