// Copies of a block at R hosts, as HDFS makes them, over SoftRIO's emulated link: through a pipeline of hosts (each
// hands on what it gets, packet by packet, as HDFS does), from the writer to each, and by one multicast write.
//
// Every host is an endpoint of its own and a thread. A packet is written, then announced by a doorbell; the last host
// of a pipeline, or each host, answers when it has the block and has compared every byte. A multicast write has no
// response: a write of 8 bytes with one, to each host, behind the last packet says that all of it is there.
// Without --all one host, which keeps none, writes blocks to R others. With --all each of R + 1 hosts writes blocks at
// the same time: the first copy stays with it, R - 1 go to the next hosts, as HDFS places them.
// The link imposes its rate: what is seen is how often a byte goes over which link, not how fast a network is.
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <rapidio_mport_dma.h>
#include <rapidio_mport_mgmt.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr did_val_t first_group = 0x8000;
constexpr std::uint64_t window_at = 0x1000'0000;
constexpr std::uint64_t page = 4096;
constexpr std::uint16_t answer_bell = 0xFFFF;

struct Settings {
    std::uint32_t replicas = 3;
    std::uint32_t block_mib = 8;
    std::uint32_t packet_kib = 64;
    std::uint32_t slowdown = 20;
    std::uint32_t rounds = 5;
    bool all_write = false;
    [[nodiscard]] std::uint64_t block_bytes() const { return std::uint64_t{block_mib} << 20U; }
    [[nodiscard]] std::uint64_t packet_bytes() const { return std::uint64_t{packet_kib} << 10U; }
    [[nodiscard]] std::uint32_t packets() const { return static_cast<std::uint32_t>(block_bytes() / packet_bytes()); }
};

void check(int error, const char* what) {
    if (error < 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(-error));
}

/// One host: an endpoint with a window for the blocks of each writer. Doorbells: the writer's number, then how it goes
/// on.
class Host {
public:
    Host(std::uint32_t number, std::uint32_t hosts, const Settings& settings)
        : settings_(settings), number_(number), stride_(settings.block_bytes() + page) {
        const auto index = static_cast<std::uint8_t>(number);
        for (riomp_mport_t* const each : {&writing_, &forwarding_, &hearing_})
            check(riomp_mgmt_mport_create_handle(index, 0, each), "master port");
        // One handle hears what blocks are announced by, another the answers.
        check(riomp_mgmt_dbrange_enable(hearing_, 0xFFFF, 0, static_cast<std::uint16_t>(hosts - 1)), "doorbells");
        check(riomp_mgmt_dbrange_enable(writing_, 0xFFFF, answer_bell, answer_bell), "doorbells");
        for (const riomp_mport_t each : {hearing_, writing_})
            check(riomp_mgmt_set_event_mask(each, RIO_EVENT_DOORBELL), "event mask");
        std::uint64_t base = window_at;
        local_ = RIOMP_MAP_ANY_ADDR;
        check(riomp_dma_ibwin_map(forwarding_, &base, static_cast<std::uint32_t>(stride_ * hosts), &local_), "window");
        void* mapped = nullptr;
        check(riomp_dma_map_memory(forwarding_, stride_ * hosts, static_cast<off_t>(local_), &mapped), "memory");
        memory_ = static_cast<std::uint8_t*>(mapped);
        block_.resize(settings.block_bytes());
        for (std::uint64_t at = 0; at < block_.size(); ++at)
            block_[at] = static_cast<std::uint8_t>(number * 41 + at + (at >> 12U));
    }
    /// Another block: every page of it is another one.
    void renew() {
        ++blocks_;
        for (std::uint64_t at = 0; at < block_.size(); at += page)
            std::memcpy(block_.data() + at, &blocks_, sizeof blocks_);
    }
    [[nodiscard]] did_val_t id() const { return static_cast<did_val_t>(number_ + 1); }
    [[nodiscard]] std::uint8_t* block_of(std::uint32_t writer) const { return memory_ + stride_ * writer; }
    [[nodiscard]] std::uint64_t address_of(std::uint32_t writer, std::uint64_t at) const {
        return window_at + stride_ * writer + at;
    }

    void write(riomp_mport_t by, did_val_t to, std::uint64_t address, std::uint8_t* bytes, std::uint64_t count,
               bool is_answered) const {
        check(riomp_dma_write(by, to, address, bytes, static_cast<std::uint32_t>(count),
                              is_answered ? RIO_DIRECTIO_TYPE_NWRITE_R : RIO_DIRECTIO_TYPE_NWRITE,
                              RIO_DIRECTIO_TRANSFER_SYNC, nullptr),
              "write");
    }
    static void ring(riomp_mport_t by, did_val_t to, std::uint16_t bell) {
        riomp_mgmt_event event{};
        event.header = RIO_EVENT_DOORBELL;
        event.u.doorbell = {to, bell};
        check(riomp_mgmt_send_event(by, &event), "doorbell");
    }
    static std::uint16_t await(riomp_mport_t by) {
        riomp_mgmt_event event{};
        int error = 0;
        do {
            error = riomp_mgmt_get_event(by, &event);
        } while (error == -EAGAIN || error == -EINTR);
        check(error, "event");
        return event.u.doorbell.payload;
    }

    Settings settings_;
    std::uint32_t number_;
    std::uint64_t stride_;
    riomp_mport_t writing_ = nullptr;     // blocks of its own
    riomp_mport_t forwarding_ = nullptr;  // blocks of others
    riomp_mport_t hearing_ = nullptr;
    std::uint64_t local_ = 0;
    std::uint8_t* memory_ = nullptr;
    std::vector<std::uint8_t> block_;  // that it writes; it stays until all have answered
    std::uint64_t blocks_ = 0;
};

enum class Way { pipeline, each, multicast };

/// Who writes, and to whom.
struct Plan {
    Way way = Way::pipeline;
    std::vector<std::uint32_t> writers;
    std::uint32_t copies = 0;  // over the network, of each block
    std::uint32_t hosts = 0;
    [[nodiscard]] std::uint32_t target(std::uint32_t writer, std::uint32_t copy) const {
        return (writer + 1 + copy) % hosts;
    }
    [[nodiscard]] std::uint32_t blocks_to(std::uint32_t host) const {
        std::uint32_t blocks = 0;
        for (const std::uint32_t writer : writers) {
            for (std::uint32_t copy = 0; copy < copies; ++copy)
                blocks += target(writer, copy) == host ? 1 : 0;
        }
        return blocks;
    }
};

using Hosts = std::vector<std::unique_ptr<Host>>;

void write_blocks(const Plan& plan, const Hosts& hosts, std::uint32_t writer, const Settings& settings) {
    Host& own = *hosts[writer];
    const auto bell = static_cast<std::uint16_t>(writer);
    for (std::uint32_t round = 0; round < settings.rounds; ++round) {
        own.renew();
        for (std::uint32_t packet = 0; packet < settings.packets(); ++packet) {
            const std::uint64_t at = packet * settings.packet_bytes();
            std::uint8_t* const bytes = own.block_.data() + at;
            const std::uint64_t address = own.address_of(writer, at);
            if (plan.way == Way::multicast) {
                own.write(own.writing_, first_group + writer, address, bytes, settings.packet_bytes(), false);
                continue;
            }
            const std::uint32_t targets = plan.way == Way::each ? plan.copies : 1;
            for (std::uint32_t copy = 0; copy < targets; ++copy) {
                const did_val_t to = hosts[plan.target(writer, copy)]->id();
                own.write(own.writing_, to, address, bytes, settings.packet_bytes(), true);
                Host::ring(own.writing_, to, bell);
            }
        }
        std::uint64_t end = round;
        for (std::uint32_t copy = 0; plan.way == Way::multicast && copy < plan.copies; ++copy) {
            const did_val_t to = hosts[plan.target(writer, copy)]->id();
            own.write(own.writing_, to, own.address_of(writer, settings.block_bytes()),
                      reinterpret_cast<std::uint8_t*>(&end), sizeof end, true);
            Host::ring(own.writing_, to, bell);
        }
        for (std::uint32_t copy = 0; copy < plan.copies; ++copy)
            (void)Host::await(own.writing_);
    }
}

/// Takes every block that is for it, hands it on in a pipeline, compares it, and answers.
void take_blocks(const Plan& plan, const Hosts& hosts, std::uint32_t number, const Settings& settings) {
    Host& own = *hosts[number];
    std::uint64_t left = std::uint64_t{plan.blocks_to(number)} * settings.rounds;
    std::vector<std::uint32_t> packets(plan.hosts);
    while (left > 0) {
        const std::uint16_t writer = Host::await(own.hearing_);
        const std::uint64_t at = packets[writer] * settings.packet_bytes();
        const std::uint32_t last = plan.target(writer, plan.copies - 1);
        if (plan.way == Way::pipeline && number != last) {
            const did_val_t next = hosts[(number + 1) % plan.hosts]->id();
            own.write(own.forwarding_, next, own.address_of(writer, at), own.block_of(writer) + at,
                      settings.packet_bytes(), true);
            Host::ring(own.forwarding_, next, writer);
        }
        if (plan.way != Way::multicast && ++packets[writer] < settings.packets()) continue;
        packets[writer] = 0;
        if (std::memcmp(own.block_of(writer), hosts[writer]->block_.data(), settings.block_bytes()) != 0)
            throw std::runtime_error("a block is wrong");
        --left;
        Host::ring(own.forwarding_, hosts[writer]->id(), answer_bell);
    }
}

/// Seconds for each block.
double measure(const Plan& plan, const Hosts& hosts, const Settings& settings) {
    std::vector<std::thread> threads;
    const auto start = Clock::now();
    const auto begin = [&threads](auto&& act) {
        threads.emplace_back([act] {
            try {
                act();
            } catch (const std::exception& error) {
                std::fprintf(stderr, "replication: %s\n", error.what());
                std::_Exit(1);
            }
        });
    };
    for (std::uint32_t host = 0; host < plan.hosts; ++host)
        begin([&, host] { take_blocks(plan, hosts, host, settings); });
    for (const std::uint32_t writer : plan.writers)
        begin([&, writer] { write_blocks(plan, hosts, writer, settings); });
    for (std::thread& thread : threads)
        thread.join();
    return std::chrono::duration<double>(Clock::now() - start).count() / settings.rounds;
}

void set_fabric(const Settings& settings, std::uint32_t hosts, std::uint32_t copies) {
    std::string fabric = "shm:replication-" + std::to_string(::getpid()) + "?destid=1&mports=" + std::to_string(hosts) +
                         "&link=tsi721/" + std::to_string(settings.slowdown);
    for (std::uint32_t writer = 0; writer < hosts; ++writer) {
        std::string group;
        for (std::uint32_t copy = 0; copy < copies; ++copy)
            group += (copy == 0 ? "" : "+") + std::to_string((writer + 1 + copy) % hosts + 1);
        fabric += "&multicast=" + std::to_string(first_group + writer) + ":" + group;
    }
    ::setenv("RIO_FABRIC", fabric.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): before any thread
}

void run(const Settings& settings) {
    const std::uint32_t n_hosts = settings.replicas + 1;
    const std::uint32_t copies = settings.all_write ? settings.replicas - 1 : settings.replicas;
    set_fabric(settings, n_hosts, copies);
    Hosts hosts;
    for (std::uint32_t number = 0; number < n_hosts; ++number)
        hosts.push_back(std::make_unique<Host>(number, n_hosts, settings));
    std::printf("%s, %u copies, blocks of %u MiB, packets of %u KiB, link tsi721/%u\n",
                settings.all_write ? "all hosts write" : "one host writes", settings.replicas, settings.block_mib,
                settings.packet_kib, settings.slowdown);
    for (const auto& [way, name] :
         {std::pair(Way::pipeline, "pipeline"), std::pair(Way::each, "each"), std::pair(Way::multicast, "multicast")}) {
        Plan plan{.way = way, .writers = {0}, .copies = copies, .hosts = n_hosts};
        for (std::uint32_t writer = 1; settings.all_write && writer < n_hosts; ++writer)
            plan.writers.push_back(writer);
        const double seconds = measure(plan, hosts, settings);
        const auto bits = static_cast<double>(settings.block_bytes() * plan.writers.size() * 8);
        std::printf("%-10s %8.1f ms / block %8.3f Gb/s of blocks, times %u\n", name, seconds * 1e3,
                    bits / seconds / 1e9 * settings.slowdown, settings.slowdown);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    CLI::App app("Copies of blocks over an emulated RapidIO link: by a pipeline, one by one, by multicast");
    app.add_option("--replicas", settings.replicas, "copies of a block")->check(CLI::Range(2, 7));
    app.add_option("--block-mib", settings.block_mib)->check(CLI::Range(1, 64));
    app.add_option("--packet-kib", settings.packet_kib, "HDFS: 64")->check(CLI::Range(4, 1024));
    app.add_option("--slowdown", settings.slowdown, "of the Tsi721")->check(CLI::Range(2, 1000));
    app.add_option("--rounds", settings.rounds, "blocks of each writer")->check(CLI::Range(1, 10000));
    app.add_flag("--all", settings.all_write, "all hosts write, not one");
    CLI11_PARSE(app, argc, argv);
    try {
        run(settings);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "replication: %s\n", error.what());
        return 1;
    }
    return 0;
}
