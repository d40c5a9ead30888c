#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include <incast/filter.h>

#include "runtime/filters/filters.h"

namespace incast::filters {
namespace {

constexpr Time ask_plugin_again_after = ps_per_ms;

class Plugin final : public protocol::Filter {
public:
    using Open = decltype(&incast_filter_open);
    using Decide = decltype(&incast_filter_decide);
    using Close = decltype(&incast_filter_close);

    Plugin(void* library, const protocol::Config& config) : library_(library), config_(config) {
        mfps_.resize(config.sources.size());
    }
    ~Plugin() override {
        if (filter_ != nullptr) {
            close_(filter_);
        }
        ::dlclose(library_);
    }

    /// Empty if it could be opened.
    std::string open(const std::string& argument) {
        const auto open_filter = find<Open>("incast_filter_open");
        decide_ = find<Decide>("incast_filter_decide");
        close_ = find<Close>("incast_filter_close");
        if (open_filter == nullptr || decide_ == nullptr || close_ == nullptr) {
            return "lacks incast_filter_open, incast_filter_decide or incast_filter_close";
        }
        std::array<char, 256> error{};
        filter_ = open_filter(argument.c_str(), error.data(), error.size());
        error.back() = '\0';
        return filter_ != nullptr ? std::string() : fmt::format("does not open: {}", error.data());
    }

    Verdict decide(Time now, const protocol::BuiltMep& first) override {
        for (std::size_t index = 0; index < first.sources.size(); ++index) {
            const protocol::BuiltSource& source = first.sources[index];
            mfps_[index] = {source.body.empty() ? nullptr : source.body.data(), source.body.size(),
                            config_.sources[index].id, static_cast<std::uint8_t>(source.flag)};
        }
        const incast_filter_mep mep{first.mep,
                                    first.first_event,
                                    first.n_events,
                                    first.attempt,
                                    static_cast<std::uint32_t>(first.sources.size()),
                                    mfps_.data()};
        const int verdict = decide_(filter_, &mep);
        switch (verdict) {
            case INCAST_FILTER_UNDECIDED:
                ask_again_ = now + ask_plugin_again_after;
                return Verdict::undecided;
            case INCAST_FILTER_REJECT:
                return Verdict::reject;
            default:
                if (verdict != INCAST_FILTER_ACCEPT && !std::exchange(confused_, true)) {
                    std::fputs(
                        fmt::format("incast-node: filter: {} is no verdict; such MEPs are accepted\n", verdict).c_str(),
                        stderr);
                }
                return Verdict::accept;
        }
    }
    [[nodiscard]] Time next_deadline() const override { return ask_again_; }

private:
    template <class Function>
    [[nodiscard]] Function find(const char* name) const {
        return reinterpret_cast<Function>(::dlsym(library_, name));
    }

    void* library_;
    const protocol::Config& config_;
    Decide decide_ = nullptr;
    Close close_ = nullptr;
    void* filter_ = nullptr;
    bool confused_ = false;
    Time ask_again_ = time_never;
    std::vector<incast_filter_mfp> mfps_;  // sized once
};

}  // namespace

Result<std::unique_ptr<protocol::Filter>> open_plugin(const std::string& path, const std::string& argument,
                                                      const protocol::Config& config) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps it per thread
        return Error{fmt::format("filter.path = {}: cannot be loaded: {}", path, ::dlerror())};
    }
    auto plugin = std::make_unique<Plugin>(library, config);
    if (const std::string problem = plugin->open(argument); !problem.empty()) {
        return Error{fmt::format("filter.path = {}: {}", path, problem)};
    }
    return std::unique_ptr<protocol::Filter>(std::move(plugin));
}

}  // namespace incast::filters
