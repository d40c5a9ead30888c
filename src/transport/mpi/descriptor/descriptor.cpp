#include "transport/mpi/descriptor/descriptor.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "transport/settings.h"

namespace incast::transport::mpi {

namespace {

using base::Kind;

constexpr double ms = ps_per_ms;

constexpr std::array list{
    base::text("launcher", "auto",
               "the program that starts the nodes, one process each: its MPI is the one that is used; auto: "
               "mpirun.openmpi, mpiexec.mpich, mpirun or mpiexec, whichever is there first",
               "auto, or a program of Open MPI or MPICH"),
    base::number(Kind::count, "streams", "4", 1, 64,
                 "streams of messages to each peer: as many large bodies may be under way; the same on all nodes"),
    base::number(Kind::bytes, "chunk", "64KiB", 8192, 1 << 20,
                 "the largest message of headers and small bodies; the same on all nodes"),
    base::number(Kind::count, "chunks", "4", 2, 1024,
                 "of these, that may be on their way in each stream; each peer takes 2 * streams * chunk * (chunks + "
                 "2) of memory; the same on all nodes"),
    base::number(Kind::bytes, "copy_below", "16KiB", 1, 1 << 20,
                 "bodies smaller than this travel with others in one message; larger ones by themselves, to their "
                 "place"),
    base::number(Kind::duration, "connect_timeout", "10s", ms, 3600 * 1000 * ms,
                 "connecting takes longer than this: peer_down"),
};

struct Flavour {
    std::string_view module;
    std::string_view name;
    std::array<std::string_view, 2> programs;  // of its own name
    std::array<std::string_view, 3> says;      // of itself, with --version
    bool is_built = false;
};
constexpr std::array flavours{
    Flavour{"mpi-openmpi",
            "Open MPI",
            {"mpirun.openmpi", "mpiexec.openmpi"},
            {"Open MPI", "OpenRTE", "PRRTE"},
            INCAST_OPENMPI_BUILT == 1},
    Flavour{"mpi-mpich",
            "MPICH",
            {"mpiexec.mpich", "mpiexec.hydra"},
            {"HYDRA", "MPICH", "Intel(R) MPI"},
            INCAST_MPICH_BUILT == 1},
};
constexpr const Flavour& openmpi = flavours[0];
constexpr const Flavour& mpich = flavours[1];
constexpr std::array<std::string_view, 2> common_programs{"mpirun", "mpiexec"};

const char* variable(const char* name) {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets a variable while threads run
}

std::optional<std::uint32_t> number_in(const char* name) {
    const char* const text = variable(name);
    if (text == nullptr || *text < '0' || *text > '9') return std::nullopt;
    return static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

std::string find_program(std::string_view name) {
    if (name.find('/') != std::string_view::npos)
        return ::access(std::string(name).c_str(), X_OK) == 0 ? std::string(name) : "";
    const char* const path = variable("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
        const std::string file = folder + "/" + std::string(name);
        if (::access(file.c_str(), X_OK) == 0) return file;
    }
    return {};
}

/// Whose it is, as it says itself; null: nobody's that is known.
const Flavour* flavour_of(const std::string& program) {
    std::string quoted = "'";
    for (const char each : program)
        quoted += each == '\'' ? std::string("'\\''") : std::string(1, each);
    const std::unique_ptr<FILE, int (*)(FILE*)> said(
        ::popen((quoted + "' --version 2>/dev/null </dev/null").c_str(), "re"), ::pclose);
    if (said == nullptr) return nullptr;
    std::string text;
    std::array<char, 4096> part{};
    for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), said.get())) > 0;)
        text.append(part.data(), got);
    for (const Flavour& each : flavours)
        for (const std::string_view word : each.says)
            if (text.find(word) != std::string::npos) return &each;
    return nullptr;
}

struct Launcher {
    std::string program;
    const Flavour* flavour = nullptr;
};

Result<Launcher> find_launcher(const Settings& given) {
    const auto found = given.find("launcher");
    const std::string wanted = found == given.end() || found->second.empty() ? "auto" : found->second;
    const std::string key = "transport.mpi.launcher = '" + wanted + "': ";
    if (wanted != "auto") {
        const std::string program = find_program(wanted);
        if (program.empty())
            return Error{key + "there is no such program; allowed: auto, or a program of Open MPI or MPICH"};
        const Flavour* const flavour = flavour_of(program);
        if (flavour == nullptr)
            return Error{key + "it is neither Open MPI's nor MPICH's; allowed: a program of theirs"};
        if (!flavour->is_built) return Error{key + "this program was built without " + std::string(flavour->name)};
        return Launcher{program, flavour};
    }
    if (!openmpi.is_built && !mpich.is_built)
        return Error{"transport mpi: this program was built without MPI (libopenmpi-dev, libmpich-dev)"};
    for (const Flavour& each : flavours)
        for (const std::string_view name : each.programs)
            if (const std::string program = find_program(name); each.is_built && !program.empty())
                return Launcher{program, &each};
    for (const std::string_view name : common_programs) {
        const std::string program = find_program(name);
        if (const Flavour* const flavour = program.empty() ? nullptr : flavour_of(program);
            flavour != nullptr && flavour->is_built)
            return Launcher{program, flavour};
    }
    return Error{"transport mpi: this host has no mpirun or mpiexec: the package openmpi-bin or mpich brings it"};
}

/// Of the launcher that started this process; null: none did.
const Flavour* flavour_here() {
    if (number_in("OMPI_COMM_WORLD_RANK")) return &openmpi;
    if (number_in("PMI_RANK")) return &mpich;
    return number_in("PMIX_RANK") ? &openmpi : nullptr;
}

std::optional<Rank> rank_here() {
    constexpr std::array<std::array<const char*, 2>, 2> variables{
        {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}}};
    for (const auto& [rank, size] : variables)
        if (const auto number = number_in(rank)) return Rank{*number, number_in(size).value_or(0)};
    if (const auto number = number_in("PMIX_RANK")) return Rank{*number, number_in("SLURM_NTASKS").value_or(0)};
    return std::nullopt;
}

Result<std::string> module_for(const Settings& given) {
    if (const Flavour* const here = flavour_here(); here != nullptr) return std::string(here->module);
    const Result<Launcher> launcher = find_launcher(given);
    return launcher ? Result<std::string>(std::string(launcher->flavour->module)) : launcher.error();
}

Result<std::vector<std::string>> words_for(std::uint32_t nodes, const Settings& given) {
    const Result<Launcher> launcher = find_launcher(given);
    if (!launcher) return launcher.error();
    std::vector<std::string> words{launcher->program, "-n", std::to_string(nodes)};
    if (launcher->flavour == &mpich) {
        // The run says what becomes of a process that dies, and which one it was.
        words.emplace_back("-disable-auto-cleanup");
        return words;
    }
    for (const char* const word :
         {"-q", "--oversubscribe", "--bind-to", "none", "--mca", "orte_abort_on_non_zero_status", "0", "--mca",
          "orte_allowed_exit_without_sync", "1"})
        words.emplace_back(word);
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    return words;
}

constexpr std::array modules{flavours[0].module, flavours[1].module};
constexpr Launch launch{.rank_here = rank_here, .modules = modules, .module_for = module_for, .words_for = words_for};

std::string missing_here() {
    if (flavour_here() != nullptr) return {};
    const Result<Launcher> launcher = find_launcher({});
    return launcher ? "" : launcher.error().message.substr(std::string_view("transport mpi: ").size());
}

}  // namespace

std::span<const base::Setting> settings() {
    return list;
}

Descriptor describe() {
    return {.name = transport_name,
            .summary = "MPI: messages between processes that mpirun or mpiexec starts",
            .traits = {.nature = nature},
            .settings = list,
            .former_names = {},
            .package = "incast-mpi (with openmpi-bin or mpich)",
            .untested = "every network but shared memory and loopback",
            .missing_here = missing_here,
            .launch = &launch};
}

}  // namespace incast::transport::mpi
