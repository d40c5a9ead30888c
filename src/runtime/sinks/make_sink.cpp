#include <utility>

#include "runtime/sinks/command_sink.h"
#include "runtime/sinks/consumer/consumer_sink.h"
#include "runtime/sinks/lending_sink.h"
#include "runtime/sinks/mep_sink.h"
#include "runtime/sinks/null_sink.h"
#include "runtime/sinks/sink.h"
#include "runtime/sinks/touch_sink.h"
#include "runtime/sinks/verify_sink.h"

namespace incast::sinks {

Result<std::unique_ptr<RuntimeSink>> make_sink(const SinkOptions& options, const protocol::Config& config) {
    using Made = std::unique_ptr<RuntimeSink>;
    switch (options.kind) {
        case Kind::null:
            return Made(std::make_unique<NullSink>(options));
        case Kind::touch:
            return Made(std::make_unique<TouchSink>(options));
        case Kind::verify: {
            auto expectation = options.source.kind == sources::SourceOptions::Kind::generator
                                   ? expect_generated(options.source.generator, config)
                                   : expect_replayed(options.source.replay, config);
            if (!expectation) {
                return expectation.error();
            }
            return Made(std::make_unique<VerifySink>(options, config, std::move(expectation).value()));
        }
        case Kind::mep: {
            auto sink = MepSink::open(options, config);
            if (!sink) {
                return sink.error();
            }
            return Made(std::move(sink).value());
        }
        case Kind::command: {
            auto sink = CommandSink::open(options, config);
            if (!sink) {
                return sink.error();
            }
            return Made(std::move(sink).value());
        }
        case Kind::consumer: {
            auto sink = ConsumerSink::open(options, config);
            if (!sink) {
                return sink.error();
            }
            return Made(std::move(sink).value());
        }
        case Kind::farm:
            return Made(std::make_unique<LendingSink>(options, config));
    }
    return Error{"sink: unknown kind"};
}

}  // namespace incast::sinks
