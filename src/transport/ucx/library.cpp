#include "transport/ucx/library.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <utility>

#include <ucs/debug/log_def.h>

#include "transport/calls/calls.h"
#include "transport/ucx/descriptor/descriptor.h"

namespace incast::transport::ucx {

namespace {

thread_local std::string last_words;  // NOLINT: of UCX on this thread

/// UCX prints to standard output, which is the engine's. What it says is kept, and told with what it was about; whoever
/// set UCX_LOG_LEVEL gets all of it, on standard error.
ucs_log_func_rc_t hear_log(const char* file, unsigned line, const char* /*function*/, ucs_log_level_t level,
                           const ucs_log_component_config_t* config, const char* message, va_list more) {
    if (config != nullptr && level > config->log_level) return UCS_LOG_FUNC_RC_STOP;
    std::array<char, 512> text{};
    (void)std::vsnprintf(text.data(), text.size(), message, more);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing sets a variable while threads run
    static const bool is_wanted = std::getenv("UCX_LOG_LEVEL") != nullptr;
    if (is_wanted || level == UCS_LOG_LEVEL_FATAL)
        (void)std::fprintf(stderr, "ucx: %s:%u %s\n", file, line, text.data());
    if (level <= UCS_LOG_LEVEL_WARN) last_words = text.data();
    return UCS_LOG_FUNC_RC_STOP;
}

/// Tries an endpoint to itself, which uses what one to any peer may use: whether UCX makes it, to tell of failures if
/// `tells`, and whether reads of it are more than messages of UCX.
ucs_status_t try_itself(Library& library, bool tells) {
    ucp_ep_h made = nullptr;
    const ucp_err_handler_t hear{.cb = tells ? [](void*, ucp_ep_h, ucs_status_t) {} : ucp_err_handler_cb_t{},
                                 .arg = nullptr};
    const ucs_status_t status = library.connect(library.name, hear, made);
    if (status != UCS_OK) return status;
    library.tells = tells;
    library.reads = lanes_of(made).find("get[") != std::string::npos;
    ucs_status_ptr_t const closing = close(made, tells);
    if (closing == nullptr) return status;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (ucp_request_check_status(closing) == UCS_INPROGRESS && std::chrono::steady_clock::now() < until)
        (void)ucp_worker_progress(library.worker.get());
    ucp_request_free(closing);
    return status;
}

Error refused(const std::string& what, const std::string& why) {
    return Error{std::string(transport_name) + ": " + what + ": " + why};
}

Result<Context> open_context(const std::string& tls, std::uint32_t max_peers) {
    static const bool hears = [] {
        ucs_log_push_handler(hear_log);
        return true;
    }();
    (void)hears;
    last_words.clear();
    ucp_config_t* config = nullptr;
    if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
        return refused("the variables UCX_... cannot be read", meaning(status));
    // Memory of the kernel, which is zero, and of a kind that peers on this host can be given where there is one.
    (void)ucp_config_modify(config, "ALLOC_PRIO", "md:sysv,md:posix,mmap");
    if (!tls.empty()) (void)ucp_config_modify(config, "TLS", tls.c_str());
    ucp_params_t wanted{};
    wanted.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    wanted.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    wanted.estimated_num_eps = max_peers;
    ucp_context_h made = nullptr;
    const ucs_status_t status = ucp_init(&wanted, config, &made);
    ucp_config_release(config);
    if (status != UCS_OK)
        return refused("UCX has no transport here (transport.ucx.tls, UCX_TLS, UCX_NET_DEVICES)", meaning(status));
    return Context(made, CleanUp());
}

}  // namespace

ucs_status_t Library::connect(std::span<const std::byte> to, ucp_err_handler_t hear, ucp_ep_h& made) const {
    ucp_ep_params_t wanted{};
    wanted.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    wanted.address = reinterpret_cast<const ucp_address_t*>(to.data());
    wanted.err_mode = UCP_ERR_HANDLING_MODE_NONE;
    if (hear.cb != nullptr) {
        wanted.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
        wanted.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        wanted.err_handler = hear;
    }
    made = nullptr;
    return ucp_ep_create(worker.get(), &wanted, &made);
}

ucs_status_ptr_t close(ucp_ep_h endpoint, bool by_force) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = by_force ? unsigned{UCP_EP_CLOSE_FLAG_FORCE} : 0U;
    ucs_status_ptr_t const request = ucp_ep_close_nbx(endpoint, &param);
    return UCS_PTR_IS_PTR(request) ? request : nullptr;
}

std::string lanes_of(ucp_ep_h endpoint) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const file = ::open_memstream(&text, &size);
    if (file == nullptr) return {};
    ucp_ep_print_info(endpoint, file);
    (void)std::fclose(file);
    std::string all(text, size);
    std::free(text);  // NOLINT(cppcoreguidelines-no-malloc): open_memstream has it from there
    return all;
}

void abandon(std::unique_ptr<ucp_worker, Destroy> worker, const Context& context) {
    static std::mutex mutex;
    static auto& abandoned = *new std::vector<std::pair<std::unique_ptr<ucp_worker, Destroy>, Context>>;  // for good
    const std::lock_guard lock(mutex);
    abandoned.emplace_back(std::move(worker), context);
}

std::string meaning(ucs_status_t status) {
    const std::string words = std::exchange(last_words, {});
    return ucs_status_string(status) + (words.empty() ? "" : " (" + words + ")");
}

Result<Mapping> Mapping::make(const Context& context, std::span<std::byte> memory) {
    ucp_mem_map_params_t wanted{};
    wanted.field_mask =
        UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    wanted.address = memory.data();
    wanted.length = memory.size();
    wanted.flags = UCP_MEM_MAP_NONBLOCK | (memory.data() == nullptr ? unsigned{UCP_MEM_MAP_ALLOCATE} : 0U);
    Mapping made;
    if (const ucs_status_t status = ucp_mem_map(context.get(), &wanted, &made.handle_); status != UCS_OK)
        return Error{"UCX does not take it: " + meaning(status)};
    made.context_ = context;
    ucp_mem_attr_t is{};
    is.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
    if (const ucs_status_t status = ucp_mem_query(made.handle_, &is); status != UCS_OK)
        return Error{"UCX does not say where it is: " + meaning(status)};
    made.memory_ = {static_cast<std::byte*>(is.address), memory.size()};
    return made;
}

Result<std::span<std::byte>> Allocator::take(std::size_t bytes) {
    auto made = Mapping::make(context_, {static_cast<std::byte*>(nullptr), bytes});
    if (!made) return made.error();
    const std::span<std::byte> memory = made->memory();
    all_.push_back(std::move(*made));
    return memory;
}

void Allocator::give_back(std::span<std::byte> memory) {
    std::erase_if(all_, [&](const Mapping& each) { return each.memory().data() == memory.data(); });
}

ucp_mem_h Allocator::handle_of(const std::byte* memory) const {
    const auto found = std::ranges::find_if(all_, [&](const Mapping& each) { return each.memory().data() == memory; });
    return found == all_.end() ? nullptr : found->handle();
}

Result<Library> Library::open(const EndpointSettings& settings, std::uint32_t self, std::uint32_t max_peers) {
    constexpr std::uint32_t most_peers = std::numeric_limits<std::uint16_t>::max();
    if (max_peers > most_peers)
        return refused(std::to_string(max_peers) + " peers", "at most " + std::to_string(most_peers) + " are possible");
    Library made;
    made.address = settings.bind[self % settings.bind.size()];
    auto context = open_context(settings.tls, max_peers);
    if (!context) return context.error();
    made.context = std::move(*context);
    ucp_worker_params_t wanted{};
    wanted.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    wanted.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucp_worker_h worker = nullptr;
    ucs_status_t status = ucp_worker_create(made.context.get(), &wanted, &worker);
    if (status != UCS_OK) return refused("no worker of UCX", meaning(status));
    made.worker.reset(worker);
    status = ucp_worker_get_efd(worker, &made.wait_fd);
    if (status != UCS_OK) return refused("what to wait for", meaning(status));
    ucp_address_t* name = nullptr;
    std::size_t bytes = 0;
    status = ucp_worker_get_address(worker, &name, &bytes);
    if (status != UCS_OK) return refused("no address of UCX", meaning(status));
    const auto* const first = reinterpret_cast<const std::byte*>(name);
    made.name.assign(first, first + bytes);
    ucp_worker_release_address(worker, name);
    if (settings.failures != Failures::none) {
        status = try_itself(made, true);
        if (status != UCS_OK && settings.failures == Failures::peer)
            return refused("transport.ucx.failures = peer: nothing that UCX may use here tells of failures",
                           meaning(status));
    }
    if (!made.tells) (void)try_itself(made, false);
    auto calls = listen_at(made.address, settings.ports);
    if (!calls) return refused("no calls at transport.ucx.bind = " + made.address.to_string(), calls.error().message);
    made.calls = std::move(*calls);
    return made;
}

}  // namespace incast::transport::ucx
