// What whoever starts a run asks for beside its config.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/report/report.h"

namespace incast::runtime {

struct RunOptions {
    std::filesystem::path output;
    bool replace = false;  // an old run's files in it
    Progress progress = Progress::text;
    std::optional<std::uint32_t> spawn;  // node processes started here; nothing: all of them
    std::string listen;                  // where nodes join; empty: on loopback, IPv4 if there is any
    bool check_only = false;             // say what is wrong with the config, and run nothing
    std::string token;                   // that joining nodes must know; empty: one is made up
    int watched_by = 0;                  // the run ends early with this process; 0: with none
};

}  // namespace incast::runtime
