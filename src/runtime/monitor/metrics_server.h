// Serves the metrics of the nodes of this process to Prometheus: HTTP/1.1, GET /metrics, one answer per connection,
// from a thread of its own. It shows the samples that are taken anyway, so a node does nothing more for it than copy
// each of them once; it never waits for a client. What a client may cost is bounded (docs/metrics.md, "Limits").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <incast/result.h>
#include <incast/transport.h>

#include "runtime/monitor/exposition.h"
#include "runtime/plan/resolve.h"
#include "runtime/report/report.h"

namespace incast::runtime {

class MetricsServer {
public:
    static constexpr std::size_t max_clients = 16;  // for further ones the oldest makes room
    static constexpr std::size_t max_request_bytes = 8192;
    static constexpr Time accept_pause = 100 * ps_per_ms;  // after a failure
    static constexpr Time client_deadline = 5 * ps_per_s;  // for request and answer together

    /// Where node `node` listens as run.metrics says; nothing if it says off. Error: it cannot, with the key's name.
    static Result<std::unique_ptr<MetricsServer>> open_for(const Plan& plan, std::uint32_t node);
    /// `address`: HOST:PORT, port 0: the kernel chooses.
    static Result<std::unique_ptr<MetricsServer>> open(const std::string& address, RunLabels run);
    /// Ends the thread; clients that are being served are cut off.
    ~MetricsServer();
    MetricsServer(const MetricsServer&) = delete;
    MetricsServer& operator=(const MetricsServer&) = delete;

    /// From now on this is what that node shows, which has been so for `age`.
    void publish(const NodeSample& sample, const std::string& roles, Time age);

    /// HOST:PORT as bound; with a host that stands for all (0.0.0.0), that one.
    [[nodiscard]] const std::string& address() const { return address_; }

private:
    class Service;
    MetricsServer(std::unique_ptr<Service> service, std::string address);
    std::unique_ptr<Service> service_;
    std::string address_;
};

/// Whether nodes 0 to `nodes` - 1 can listen on this host as run.metrics says. Error: which one cannot, and why.
[[nodiscard]] Result<Ok> try_metrics(const std::string& setting, std::uint32_t nodes);

/// run.metrics of that node: HOST and PORT + node, or port 0. Error: no such address.
[[nodiscard]] Result<std::string> metrics_address(const std::string& setting, std::uint32_t node);

/// `bound`, with `host` in the place of one that stands for all of them (0.0.0.0, ::).
[[nodiscard]] std::string reachable_address(const std::string& bound, const std::string& host);

/// Whether node `node`, whose connection comes from `host`, may say that its metrics are at `claimed`: numbers, and its
/// own address or that of run.metrics. Prometheus asks whatever is listed.
[[nodiscard]] bool may_claim_metrics(const std::string& setting, std::uint32_t node, const std::string& claimed,
                                     const std::string& host);

/// Says where `who` can be scraped, and writes all addresses (empty ones left out) to `metrics.json` in the run's
/// folder, for file_sd_configs of Prometheus.
void announce_metrics(Reporter& reporter, const std::string& who, const std::string& address,
                      std::span<const std::string> all);

}  // namespace incast::runtime
