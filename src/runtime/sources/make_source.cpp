#include "runtime/sources/board_source.h"
#include "runtime/sources/generator.h"
#include "runtime/sources/program_source.h"
#include "runtime/sources/replay.h"
#include "runtime/sources/source.h"
#include "runtime/sources/stream_source.h"

namespace incast::sources {

Result<std::unique_ptr<RuntimeSource>> make_source(const SourceOptions& options) {
    using Made = std::unique_ptr<RuntimeSource>;
    switch (options.kind) {
        case SourceOptions::Kind::generator:
            return Made(std::make_unique<Generator>(options.generator));
        case SourceOptions::Kind::replay:
            return Made(std::make_unique<Replay>(options.replay));
        case SourceOptions::Kind::boards:
            return Made(std::make_unique<BoardSource>(options.boards));
        case SourceOptions::Kind::streams:
            return Made(std::make_unique<StreamSource>(options.boards));
        case SourceOptions::Kind::programs:
            return Made(std::make_unique<ProgramSource>(options.programs));
    }
    return Error{"source: unknown kind"};
}

}  // namespace incast::sources
