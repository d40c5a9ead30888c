// A plain loop of UCX from one process to another, and nothing else: writes, a flush of all that were free, an active
// message for each, which are the calls of the transport ucx. Prints the process that writes, when both have met, and
// bytes per second, as seen by who receives.
//
//     ucx_loop tcp,self 65536         TLS BYTES [--depth N] [--warm-up S] [--seconds S]
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t places_bytes = std::size_t{64} << 20;
constexpr unsigned notice_id = 1;

void must(ucs_status_t status, const char* what) {
    if (status != UCS_OK) throw std::runtime_error(std::string(what) + ": " + ucs_status_string(status));
}

struct Load {
    std::string tls;
    std::size_t bytes = 0;
    std::size_t depth = 32;
    double warm_up_s = 0.5;
    double seconds = 2;
};

/// What one side tells the other over the pipe between them.
struct Side {
    std::array<char, 8192> name{};
    std::array<char, 1024> key{};
    std::uint64_t address = 0;
};

/// One process's end. What it opens is given back with the process.
class End {
public:
    explicit End(const Load& load) {
        ucp_config_t* config = nullptr;
        must(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
        must(ucp_config_modify(config, "TLS", load.tls.c_str()), "UCX_TLS");
        must(ucp_config_modify(config, "ALLOC_PRIO", "md:sysv,md:posix,mmap"), "UCX_ALLOC_PRIO");
        ucp_params_t wanted{};
        wanted.field_mask = UCP_PARAM_FIELD_FEATURES;
        wanted.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        must(ucp_init(&wanted, config, &context_), "ucp_init");
        ucp_worker_params_t single{};
        must(ucp_worker_create(context_, &single, &worker_), "ucp_worker_create");
        ucp_mem_map_params_t memory{};
        memory.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        memory.length = places_bytes;
        memory.flags = UCP_MEM_MAP_ALLOCATE;
        must(ucp_mem_map(context_, &memory, &mapping_), "ucp_mem_map");
        ucp_mem_attr_t is{};
        is.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        must(ucp_mem_query(mapping_, &is), "ucp_mem_query");
        memory_ = static_cast<std::byte*>(is.address);
        std::memset(memory_, 1, places_bytes);
        ucp_am_handler_param_t handler{};
        handler.field_mask =
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = notice_id;
        handler.arg = &notices_;
        handler.cb = [](void* notices, const void*, std::size_t, void*, std::size_t, const ucp_am_recv_param_t*) {
            ++*static_cast<std::uint64_t*>(notices);
            return UCS_OK;
        };
        must(ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");
    }

    void meet(int pipe, bool tells) {
        Side own;
        ucp_address_t* name = nullptr;
        std::size_t name_bytes = 0;
        must(ucp_worker_get_address(worker_, &name, &name_bytes), "ucp_worker_get_address");
        void* key = nullptr;
        std::size_t key_bytes = 0;
        must(ucp_rkey_pack(context_, mapping_, &key, &key_bytes), "ucp_rkey_pack");
        if (name_bytes > own.name.size() || key_bytes > own.key.size()) throw std::runtime_error("too long an address");
        std::memcpy(own.name.data(), name, name_bytes);
        std::memcpy(own.key.data(), key, key_bytes);
        own.address = reinterpret_cast<std::uintptr_t>(memory_);
        if (::send(pipe, &own, sizeof own, 0) != sizeof own ||
            ::recv(pipe, &peer_, sizeof peer_, MSG_WAITALL) != sizeof peer_)
            throw std::runtime_error("the other process ended");
        ucp_ep_params_t wanted{};
        wanted.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        wanted.address = reinterpret_cast<const ucp_address_t*>(peer_.name.data());
        wanted.err_mode = tells ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
        must(ucp_ep_create(worker_, &wanted, &endpoint_), "ucp_ep_create");
        must(ucp_ep_rkey_unpack(endpoint_, peer_.key.data(), &key_), "ucp_ep_rkey_unpack");
    }

    /// Calls each() when it is over.
    template <class Each>
    void write(std::size_t place, std::size_t bytes, Each* each) {
        const ucp_request_param_t param = param_of(each);
        started(ucp_put_nbx(endpoint_, memory_ + place * bytes, bytes, peer_.address + place * bytes, key_, &param),
                *each);
    }
    template <class Each>
    void flush(Each* each) {
        const ucp_request_param_t param = param_of(each);
        started(ucp_ep_flush_nbx(endpoint_, &param), *each);
    }
    template <class Each>
    void notify(const std::uint64_t* header, Each* each) {
        const ucp_request_param_t param = param_of(each);
        started(ucp_am_send_nbx(endpoint_, notice_id, header, sizeof *header, nullptr, 0, &param), *each);
    }
    void progress() {
        if (ucp_worker_progress(worker_) == 0) ::sched_yield();  // as Incast's nodes do where they share a core
    }
    [[nodiscard]] std::uint64_t notices() const { return notices_; }

private:
    template <class Each>
    static ucp_request_param_t param_of(Each* each) {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        param.user_data = each;
        param.cb.send = [](void* request, ucs_status_t status, void* given) {
            ucp_request_free(request);
            if (status == UCS_OK) (*static_cast<Each*>(given))();
        };
        return param;
    }
    template <class Each>
    static void started(ucs_status_ptr_t request, Each& each) {
        if (UCS_PTR_IS_ERR(request)) must(UCS_PTR_STATUS(request), "what is to be sent");
        if (request == nullptr) each();
    }

    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_mem_h mapping_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    ucp_rkey_h key_ = nullptr;
    std::byte* memory_ = nullptr;
    Side peer_;
    std::uint64_t notices_ = 0;
};

/// Answers once its writes are measured; the number of them.
std::uint64_t receive(End& end, const Load& load) {
    const auto after = [begin = Clock::now()](double seconds) {
        return begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    const auto poll_until = [&](Clock::time_point until) {
        while (Clock::now() < until)
            end.progress();
        return end.notices();
    };
    const Clock::time_point until = after(load.warm_up_s + load.seconds);
    const std::uint64_t before = poll_until(after(load.warm_up_s));
    return poll_until(until) - before;
}

[[noreturn]] void write_on(End& end, const Load& load) {
    // Half of the places are written while the other half is flushed.
    struct Half {
        End* end;
        std::size_t first, many, bytes;
        std::uint64_t header = 0;
        std::size_t left = 0;
        void begin() {
            left = many + 1;
            for (std::size_t place = first; place < first + many; ++place)
                end->write(place, bytes, &written);
            end->flush(&flushed);
        }
        struct Ended {
            Half* of;
            void operator()() const { --of->left; }
        } written{this}, flushed{this}, told{this};
    };
    std::array<Half, 2> halves{Half{.end = &end, .first = 0, .many = load.depth / 2, .bytes = load.bytes},
                               Half{.end = &end, .first = load.depth / 2, .many = load.depth / 2, .bytes = load.bytes}};
    for (Half& half : halves) {
        half.written.of = half.flushed.of = half.told.of = &half;
        half.begin();
    }
    for (;;) {
        for (Half& half : halves) {
            if (half.left > 0) continue;
            half.left = half.many;
            for (std::size_t each = 0; each < half.many; ++each)
                end.notify(&half.header, &half.told);
            while (half.left > 0)
                end.progress();
            half.begin();
        }
        end.progress();
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("A plain loop of UCX's writes, flushes and active messages");
    Load load;
    app.add_option("tls", load.tls, "UCX's transports, as tcp,self or posix,self")->required();
    app.add_option("bytes", load.bytes, "of a write")->required()->check(CLI::Range(1UL, places_bytes / 2));
    app.add_option("--depth", load.depth, "writes under way")->check(CLI::Range(2, 4096));
    app.add_option("--warm-up", load.warm_up_s, "seconds before it is measured");
    app.add_option("--seconds", load.seconds, "that are measured");
    CLI11_PARSE(app, argc, argv);
    if (load.bytes * load.depth > places_bytes) load.depth = places_bytes / load.bytes;
    std::array<int, 2> pipe{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pipe.data()) != 0) return 1;
    const pid_t child = ::fork();
    try {
        End end(load);
        end.meet(pipe[child == 0 ? 1 : 0], load.tls.starts_with("tcp"));
        if (child == 0) write_on(end, load);
        std::printf("writer %d\n", child);
        std::fflush(stdout);
        const std::uint64_t writes = receive(end, load);
        (void)::kill(child, SIGKILL);
        (void)::waitpid(child, nullptr, 0);
        std::printf("%.0f\n", static_cast<double>(writes * load.bytes) / load.seconds);
        std::fflush(stdout);
        ::_exit(0);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "ucx_loop: %s\n", error.what());
        if (child > 0) (void)::kill(child, SIGKILL);
        ::_exit(1);
    }
}
