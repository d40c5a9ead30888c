#include "runtime/monitor/metrics_server.h"

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "os/socket.h"

namespace incast::runtime {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

NodeSample sample_of(std::uint32_t node) {
    NodeSample sample;
    sample.node = node;
    sample.incarnation = 2;
    sample.state = protocol::NodeState::running;
    sample.rss_bytes = 4096;
    sample.totals.built_goodput_bytes = 12'345'678'901;
    sample.totals.cpu_ns = 1'500'000'000;
    sample.totals.meps_built = 4;
    sample.totals.delay_ns = 2'000'000;
    sample.totals.timed_meps = 4;
    return sample;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

TEST(Exposition, HasBaseUnitsAndLabels) {
    const std::vector<ExposedNode> nodes{{"EM+RU", 1.5, sample_of(0)}, {"BU", 2.25, sample_of(3)}};
    const std::string text = exposition({"build", "tcp", "a \"quoted\\ word"}, nodes);
    const std::vector<std::string> lines = lines_of(text);
    EXPECT_THAT(lines, testing::IsSupersetOf(std::vector<std::string>{
                           "# TYPE incast_built_goodput_bytes_total counter",
                           "incast_built_goodput_bytes_total{node=\"3\"} 12345678901",
                           "incast_cpu_seconds_total{node=\"0\"} 1.5",
                           "incast_mep_latency_seconds_sum{node=\"0\"} 0.002",
                           "incast_mep_latency_seconds_count{node=\"0\"} 4",
                           "incast_node_info{node=\"3\",roles=\"BU\"} 1",
                           "incast_node_state{node=\"0\",state=\"running\"} 1",
                           "incast_node_state{node=\"0\",state=\"evicted\"} 0",
                           "incast_sample_timestamp_seconds{node=\"3\"} 2.250000",
                           "incast_run_info{task=\"build\",transport=\"tcp\",scheme=\"a \\\"quoted\\\\ word\"} 1",
                       }));
}

TEST(Exposition, TellsEveryTotalOnceAndInOneBlock) {
    const std::vector<ExposedNode> nodes{{"RU", 1, sample_of(0)}, {"BU", 1, sample_of(1)}};
    std::set<std::string> described;
    std::string current;
    std::size_t counters = 0;
    for (const std::string& line : lines_of(exposition({}, nodes))) {
        if (line.starts_with("# TYPE ")) {
            current = line.substr(7, line.find(' ', 7) - 7);
            EXPECT_TRUE(described.insert(current).second) << current << " is described twice";
            counters += line.ends_with(" counter") ? 1 : 0;
            EXPECT_EQ(line.ends_with(" counter"), current.ends_with("_total")) << line;
        } else if (!line.starts_with("#")) {
            EXPECT_THAT(line, StartsWith(current));
        }
    }
    EXPECT_EQ(counters, totals_fields().size() - 2);  // sum and count of the latency are a summary
}

TEST(MetricsAddress, IsThePortOfTheNode) {
    EXPECT_EQ(*metrics_address("10.0.0.1:9300", 3), "10.0.0.1:9303");
    EXPECT_EQ(*metrics_address("[fd00::1]:9300", 1), "[fd00::1]:9301");
    EXPECT_EQ(*metrics_address("localhost:0", 7), "localhost:0");
    EXPECT_THAT(metrics_address("10.0.0.1:65535", 1).error().message, HasSubstr("run.metrics = 10.0.0.1:65535"));
    EXPECT_THAT(metrics_address("host:port", 0).error().message, HasSubstr("allowed: off, or HOST:PORT"));
    EXPECT_EQ(reachable_address("0.0.0.0:9300", "10.0.0.1"), "10.0.0.1:9300");
    EXPECT_EQ(reachable_address("[::]:9300", "fd00::1"), "[fd00::1]:9300");
    EXPECT_EQ(reachable_address("10.0.0.2:9300", "10.0.0.1"), "10.0.0.2:9300");
}

class MetricsServerTest : public testing::Test {
protected:
    void SetUp() override {
        Result<std::unique_ptr<MetricsServer>> opened = MetricsServer::open("127.0.0.1:0", {"build", "tcp", "push"});
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        server_ = std::move(*opened);
        server_->publish(sample_of(2), "BU", 0);
    }

    os::Descriptor connect() {
        Result<os::Descriptor> socket = os::connect_to(server_->address(), 5000);
        EXPECT_TRUE(socket.ok());
        return std::move(*socket);
    }
    /// Everything until the server closes, or nothing within the deadline.
    static std::string receive(const os::Descriptor& socket) {
        std::string text;
        while (true) {
            pollfd waiting{socket.fd(), POLLIN, 0};
            if (poll(&waiting, 1, 10'000) != 1) {
                ADD_FAILURE() << "no answer";
                return text;
            }
            char bytes[4096];
            const ssize_t count = recv(socket.fd(), bytes, sizeof bytes, 0);
            if (count <= 0) {
                return text;
            }
            text.append(bytes, static_cast<std::size_t>(count));
        }
    }
    static void say(const os::Descriptor& socket, std::string_view text) {
        EXPECT_EQ(send(socket.fd(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    }
    std::string answer_to(std::string_view request) {
        const os::Descriptor socket = connect();
        say(socket, request);
        return receive(socket);
    }

    std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ServesTheLastSample) {
    NodeSample later = sample_of(2);
    later.totals.meps_built = 5;
    server_->publish(later, "BU", 0);
    const std::string text = answer_to("GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
    EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    EXPECT_THAT(text, HasSubstr("incast_meps_built_total{node=\"2\"} 5\n"));
    const std::string head = answer_to("HEAD /metrics HTTP/1.0\r\n\r\n");
    EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(head, testing::EndsWith("\r\n\r\n"));
}

TEST_F(MetricsServerTest, RefusesWhatIsNoScrape) {
    EXPECT_THAT(answer_to("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
    EXPECT_THAT(answer_to("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
    EXPECT_THAT(answer_to("\r\n\r\n"), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
    EXPECT_THAT(answer_to("GET /metrics\r\n\r\n"), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
    const std::string endless =
        "GET /metrics HTTP/1.1\r\nCookie: " + std::string(MetricsServer::max_request_bytes, 'x');
    EXPECT_THAT(answer_to(endless), StartsWith("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
}

TEST_F(MetricsServerTest, ASlowClientKeepsNobodyWaiting) {
    const os::Descriptor silent = connect();
    const os::Descriptor slow = connect();
    say(slow, "GET /met");
    EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
    say(slow, "rics HTTP/1.1\r\n\r\n");
    EXPECT_THAT(receive(slow), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(MetricsServerTest, SilentClientsKeepNobodyOut) {
    std::vector<os::Descriptor> silent;
    silent.reserve(3 * MetricsServer::max_clients);
    for (std::size_t index = 0; index < 3 * MetricsServer::max_clients; ++index) {
        silent.push_back(connect());
    }
    const os::Descriptor honest = connect();
    say(honest, "GET /metrics HTTP/1.1\r\n\r\n");
    EXPECT_THAT(receive(honest), StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_EQ(receive(silent.front()), "") << "it made room";
}

TEST_F(MetricsServerTest, IsNotReadByPagesWhoseNamesWereMadeToMeanThisHost) {
    for (const char* good : {"localhost", "[::1]:80", "10.0.0.1", " 127.0.0.1:1 "}) {
        EXPECT_THAT(answer_to(fmt::format("GET /metrics HTTP/1.1\r\nx: y\r\nhOST:{}\r\n\r\n", good)),
                    StartsWith("HTTP/1.1 200 OK\r\n"))
            << good;
    }
    for (const char* bad : {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "a b", "[::1"}) {
        EXPECT_THAT(answer_to(fmt::format("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", bad)),
                    StartsWith("HTTP/1.1 403 Forbidden\r\n"))
            << bad;
    }
}

TEST(MetricsClaims, AreOfTheNodeItself) {
    EXPECT_TRUE(may_claim_metrics("0.0.0.0:9300", 2, "192.0.2.7:9302", "192.0.2.7"));
    EXPECT_TRUE(may_claim_metrics("127.0.0.1:0", 2, "127.0.0.1:5", "192.0.2.7"));
    EXPECT_TRUE(may_claim_metrics("localhost:0", 2, "[::1]:5", "::1"));
    EXPECT_FALSE(may_claim_metrics("0.0.0.0:9300", 2, "192.0.2.7:9300", "192.0.2.7")) << "another's port";
    EXPECT_FALSE(may_claim_metrics("0.0.0.0:9300", 2, "192.0.2.8:9302", "192.0.2.7"));
    EXPECT_FALSE(may_claim_metrics("0.0.0.0:0", 2, "192.0.2.8:80", "127.0.0.1")) << "not of this host";
    EXPECT_FALSE(may_claim_metrics("0.0.0.0:0", 2, "evil.example:80", "192.0.2.7"));
    EXPECT_FALSE(may_claim_metrics("off", 2, "192.0.2.7:9302", "192.0.2.7"));
}

TEST_F(MetricsServerTest, ATakenPortIsAnError) {
    const Result<std::unique_ptr<MetricsServer>> second = MetricsServer::open(server_->address(), {});
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.error().message, HasSubstr("cannot listen on " + server_->address()));
}

}  // namespace
}  // namespace incast::runtime
