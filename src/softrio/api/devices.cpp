#include "softrio/api/devices.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

namespace incast::softrio::api {

namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t identity_register = 0x00;
constexpr std::uint32_t revision_register = 0x04;
constexpr std::uint32_t assembly_register = 0x08;
constexpr std::uint32_t assembly_revision_register = 0x0C;
constexpr std::uint32_t through_all_switches = 0xFF;
constexpr int file_mode = 0700;

std::string hex(std::uint32_t value, int digits) {
    char text[16];
    std::snprintf(text, sizeof text, "%0*x", digits, value);
    return text;
}

const char* named_root() {
    const char* root = std::getenv("RIO_SYS");  // NOLINT(concurrency-mt-unsafe)
    return root != nullptr && *root != '\0' ? root : nullptr;
}

/// In the folder of temporary files anybody may have made one of that name: then there is none.
fs::path own_root(const Port& port) {
    std::error_code error;
    const std::string top = fs::temp_directory_path(error) / ("softrio-" + std::to_string(::geteuid()));
    (void)::mkdir(top.c_str(), file_mode);
    struct stat status{};
    if (::lstat(top.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) return {};
    std::string fabric = port.options().fabric;
    std::ranges::replace_if(fabric, [](unsigned char each) { return std::isalnum(each) == 0; }, '_');
    return fs::path(top) / fabric / std::to_string(port.destid());
}

fs::path root_of(const Port& port) {
    const char* named = named_root();
    return named != nullptr ? fs::path(named) : own_root(port);
}

fs::path devices_of(const fs::path& root) {
    return root / "bus/rapidio/devices";
}

bool write_file(const fs::path& path, const std::string& text) {
    std::ofstream file(path, std::ios::trunc);
    file << text << '\n';
    return static_cast<bool>(file.flush());
}

std::string read_file(const fs::path& path) {
    std::ifstream file(path);
    std::string text;
    std::getline(file, text);
    return text;
}

bool is_file_name(const std::string& name) {
    return name.find('/') == std::string::npos && name != "." && name != "..";
}

int read_any(Port& port, const Device& device, std::uint32_t offset, std::uint32_t& value) {
    if (device.hops == through_all_switches) return port.read_registers(device.destid, offset, {&value, 1});
    return port.read_on_the_way(device.destid, device.hops, offset, {&value, 1});
}

}  // namespace

int add_device(Port& port, Device device) {
    const fs::path root = root_of(port);
    if (root.empty()) return -EACCES;
    if (!is_file_name(device.name)) return -EINVAL;
    const bool is_switch = device.hops != through_all_switches;
    if (!device.name.empty() && fs::exists(devices_of(root) / device.name)) return -EEXIST;
    std::uint32_t identity = 0;
    std::uint32_t revision = 0;
    std::uint32_t assembly = 0;
    std::uint32_t assembly_revision = 0;
    if (read_any(port, device, identity_register, identity) != 0) return -EIO;
    (void)read_any(port, device, revision_register, revision);
    (void)read_any(port, device, assembly_register, assembly);
    (void)read_any(port, device, assembly_revision_register, assembly_revision);
    if (device.name.empty())
        device.name = hex(device.mport, 2) + (is_switch ? ":s:" : ":e:") + hex(device.component_tag & 0xFFFF, 4);
    std::error_code error;
    fs::create_directories(devices_of(root), error);
    const fs::path folder = devices_of(root) / device.name;
    // Who makes the folder has the name.
    if (error || !fs::create_directory(folder, error)) return error ? -EACCES : -EEXIST;
    const std::pair<const char*, std::string> files[] = {
        {"vid", "0x" + hex(identity & 0xFFFF, 4)},
        {"did", "0x" + hex(identity >> 16, 4)},
        {"device_rev", "0x" + hex(revision, 8)},
        {"asm_vid", "0x" + hex(assembly & 0xFFFF, 4)},
        {"asm_did", "0x" + hex(assembly >> 16, 4)},
        {"asm_rev", "0x" + hex(assembly_revision >> 16, 4)},
        {"destid", "0x" + hex(device.destid, 4)},
        {"hopcount", "0x" + hex(device.hops, 2)},
        {"comptag", "0x" + hex(device.component_tag, 8)},
        {"modalias", "rapidio:v" + hex(identity & 0xFFFF, 4) + "d" + hex(identity >> 16, 4) + "av" +
                         hex(assembly & 0xFFFF, 4) + "ad" + hex(assembly >> 16, 4)}};
    for (const auto& [name, text] : files) {
        if (!write_file(folder / name, text)) {
            fs::remove_all(folder, error);
            return -ENOSPC;
        }
    }
    return 0;
}

int remove_device(Port& port, const Device& device) {
    const fs::path root = root_of(port);
    if (root.empty() || !is_file_name(device.name)) return -ENODEV;
    std::error_code error;
    fs::path found;
    if (!device.name.empty()) {
        found = devices_of(root) / device.name;
    } else {
        for (const auto& each : fs::directory_iterator(devices_of(root), error)) {
            if (read_file(each.path() / "destid") == "0x" + hex(device.destid, 4) &&
                read_file(each.path() / "hopcount") == "0x" + hex(device.hops, 2) &&
                read_file(each.path() / "comptag") == "0x" + hex(device.component_tag, 8)) {
                found = each.path();
                break;
            }
        }
    }
    if (found.empty() || !fs::exists(found / "comptag", error) || fs::remove_all(found, error) == 0) return -ENODEV;
    if (named_root() != nullptr) return 0;
    // Nothing is left behind: what is empty goes, up to the folder of this user.
    fs::path folder = devices_of(root);
    for (int up = 0; up < 6 && fs::remove(folder, error); ++up)
        folder = folder.parent_path();
    return 0;
}

void show_port(Port& port, std::uint32_t mport) {
    const char* named = named_root();
    if (named == nullptr) return;
    const fs::path classes = fs::path(named) / "class";
    const std::string port_class = "rapidio_port/rapidio" + std::to_string(mport);
    const fs::path device = classes / ("rio_mport/rio_mport" + std::to_string(mport));
    std::error_code error;
    fs::create_directories(classes / port_class, error);
    fs::create_directories(device, error);
    (void)write_file(classes / port_class / "port_destid", "0x" + hex(port.destid(), 4));
    (void)write_file(classes / port_class / "sys_size", "1");
    fs::create_directory_symlink("../../" + port_class, device / "device", error);
}

}  // namespace incast::softrio::api
