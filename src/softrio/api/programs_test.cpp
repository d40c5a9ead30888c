// Programs as others write them: from docs/rapidio.md and from a separate compiler run, with the headers and libraries
// of the build's layout and nothing else. And the document's table of functions.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "support/softrio_api.h"

namespace incast::softrio {
namespace {

std::string contents(const std::string& path) {
    std::ifstream file(path);
    EXPECT_TRUE(file) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

const std::string document = "docs/rapidio.md";
const std::vector<std::string> headers = {"rio_route.h",          "rapidio_mport_mgmt.h", "rapidio_mport_dma.h",
                                          "rapidio_mport_sock.h", "librsvdmem.h",         "softrio.h"};

struct Row {
    std::string function;
    std::string implemented;
    std::string source;
    std::string test;
};

std::vector<Row> table() {
    const std::string text = contents(document);
    const std::regex row(R"(\| `((?:riomp_|get_|softrio_)\w+)` \| ([^|]+) \| ([^|]+) \| (\w+\.\w+) \|)");
    std::vector<Row> rows;
    for (std::sregex_iterator each(text.begin(), text.end(), row), end; each != end; ++each)
        rows.push_back({(*each)[1], (*each)[2], (*each)[3], (*each)[4]});
    return rows;
}

std::set<std::string> declared() {
    std::set<std::string> functions;
    const std::regex declaration(R"(\n(?:int|void) ((?:riomp_|get_|softrio_)\w+)\()");
    for (const std::string& header : headers) {
        const std::string text = contents(std::string(SOFTRIO_LAYOUT) + "/include/" + header);
        for (std::sregex_iterator each(text.begin(), text.end(), declaration), end; each != end; ++each)
            functions.insert((*each)[1]);
    }
    return functions;
}

/// All blocks of that language in the document, in order.
std::string blocks(const std::string& language) {
    std::istringstream text(contents(document));
    std::string found;
    bool inside = false;
    for (std::string line; std::getline(text, line);) {
        if (line.starts_with("```")) {
            inside = !inside && line == "```" + language;
        } else if (inside) {
            found.append(line).append("\n");
        }
    }
    return found;
}

class Folder {
public:
    Folder() {
        std::string name = testing::TempDir() + "softrio-XXXXXX";
        EXPECT_NE(::mkdtemp(name.data()), nullptr);
        path = name;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
};

int run(const std::string& script, const Folder& folder) {
    std::ofstream(folder.path + "/script") << script;
    const std::string command = "timeout 120 bash -eu '" + folder.path + "/script' > '" + folder.path + "/output' 2>&1";
    return std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe)
}

/// Sanitized libraries need programs linked by the same compiler with the same flags.
std::string compile(const std::string& standard, const std::string& language) {
    return std::string("'") + SOFTRIO_COMPILER + "' " + SOFTRIO_FLAGS + " -x " + language + " -std=" + standard +
           " -Wall -Wextra -Wpedantic -Werror -I'" SOFTRIO_LAYOUT "/include' -L'" SOFTRIO_LAYOUT
           "/lib' -Wl,-rpath,'" SOFTRIO_LAYOUT "/lib' ";
}

TEST(Programs, TableOfFunctionsIsComplete) {
    std::set<std::string> listed;
    std::set<std::string> tests;
    const auto& all = *testing::UnitTest::GetInstance();
    for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
        const auto& of = *all.GetTestSuite(suite);
        for (int test = 0; test < of.total_test_count(); ++test)
            tests.insert(std::string(of.name()) + "." + of.GetTestInfo(test)->name());
    }
    const std::string sources = contents("src/softrio/api/mgmt_test.cpp") + contents("src/softrio/api/dma_test.cpp") +
                                contents("src/softrio/api/event_test.cpp") + contents("src/softrio/api/sock_test.cpp") +
                                contents("src/softrio/api/fault_test.cpp") +
                                contents("src/softrio/api/guard_test.cpp") + contents("tests/support/softrio_api.h");
    for (const Row& row : table()) {
        EXPECT_TRUE(listed.insert(row.function).second) << row.function << " is there twice";
        EXPECT_TRUE(tests.contains(row.test)) << row.function << ": there is no test " << row.test;
        EXPECT_NE(sources.find(row.function + "("), std::string::npos) << row.function << ": no test calls it";
    }
    EXPECT_EQ(listed, declared());
    EXPECT_EQ(listed.size(), 60U);
}

/// Tests of the API in which a fabric does otherwise than another.
std::set<std::string> tests_that_differ() {
    std::set<std::string> found;
    const std::regex start(R"(\nTEST\((\w+), (\w+)\))");
    const std::regex asks(R"(is_(shm|udp|linux)\(|SKIP_ON_)");
    for (const char* file : {"dma", "event", "fault", "mgmt", "sock"}) {
        const std::string text = contents(std::string("src/softrio/api/") + file + "_test.cpp");
        for (std::sregex_iterator each(text.begin(), text.end(), start), end; each != end; ++each) {
            const std::string body = each->suffix().str().substr(0, each->suffix().str().find("\nTEST("));
            if (std::regex_search(body, asks)) found.insert((*each)[1].str() + "." + (*each)[2].str());
        }
    }
    return found;
}

TEST(Programs, TableOfDifferencesIsComplete) {
    const std::string text = contents(document);
    const std::size_t begin = text.find("### What differs");
    ASSERT_NE(begin, std::string::npos);
    const std::string section = text.substr(begin, text.find("\n## ", begin) - begin);
    std::set<std::string> named;
    const std::regex name(R"(\b((?:Cm|Dma|Events|Faults|Guard|Mgmt)\.\w+))");
    for (std::sregex_iterator each(section.begin(), section.end(), name), end; each != end; ++each)
        named.insert((*each)[1]);
    for (const std::string& test : tests_that_differ())
        EXPECT_TRUE(named.contains(test)) << test << ": what differs there is not in the table";
    const auto& all = *testing::UnitTest::GetInstance();
    for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
        const auto& of = *all.GetTestSuite(suite);
        for (int test = 0; test < of.total_test_count(); ++test)
            named.erase(std::string(of.name()) + "." + of.GetTestInfo(test)->name());
    }
    EXPECT_EQ(named, std::set<std::string>{}) << "no such tests";
}

TEST(Programs, EveryFunctionLinksFromCAndCpp) {
    const Folder folder;
    std::ofstream program(folder.path + "/all.c");
    for (const std::string& header : headers)
        program << "#include <" << header << ">\n";
    program << "typedef void (*any_function)(void);\nint main(void) {\n    any_function volatile all[] = {\n";
    for (const std::string& function : declared())
        program << "        (any_function)" << function << ",\n";
    program << "    };\n    for (unsigned each = 0; each < sizeof all / sizeof *all; ++each)\n"
               "        if (!all[each]) return 1;\n    return 0;\n}\n";
    program.close();
    const std::string link = " all.c -o all -lmport -lrsvdmem && ./all\n";
    for (const auto& [standard, language] : {std::pair{"c11", "c"}, {"c17", "c"}, {"c++11", "c++"}, {"c++20", "c++"}}) {
        EXPECT_EQ(run("cd '" + folder.path + "'\n" + compile(standard, language) + link, folder), 0)
            << standard << "\n"
            << contents(folder.path + "/output");
    }
}

TEST(Programs, EveryHeaderStandsAlone) {
    const Folder folder;
    for (const std::string& header : headers) {
        for (const auto& [standard, language] : {std::pair{"c11", "c"}, {"c++11", "c++"}}) {
            std::ofstream(folder.path + "/one.c") << "#include <" << header << ">\nint main(void) { return 0; }\n";
            EXPECT_EQ(run("cd '" + folder.path + "'\n" + compile(standard, language) + "one.c -o one\n", folder), 0)
                << header << " " << standard << "\n"
                << contents(folder.path + "/output");
        }
    }
}

TEST(Programs, CppClientTalksToItself) {
    const Folder folder;
    std::ofstream(folder.path + "/cm.cpp") << R"(
#include <rapidio_mport_mgmt.h>
#include <rapidio_mport_sock.h>
#include <cstring>
#include <thread>
int main() {
    mport_list_t* list = nullptr;
    uint8_t count = 8;
    if (riomp_mgmt_get_mport_list(&list, &count) != 0 || count != 1) return 1;
    const did_val_t own = list[0] & 0xffff;
    riomp_mailbox_t mailbox = nullptr;
    if (riomp_sock_mbox_create_handle(0, 0, &mailbox) != 0) return 2;
    riomp_sock_t listener = nullptr, client = nullptr, accepted = nullptr;
    riomp_sock_socket(mailbox, &listener);
    riomp_sock_socket(mailbox, &client);
    if (riomp_sock_bind(listener, 1000) != 0 || riomp_sock_listen(listener) != 0) return 3;
    std::thread server([&] { riomp_sock_accept(listener, &accepted, 20000, nullptr); });
    const int error = riomp_sock_connect(client, own, 1000, nullptr);
    server.join();
    if (error != 0 || accepted == nullptr) return 4;
    rapidio_mport_socket_msg* out = nullptr;
    riomp_sock_request_send_buffer(client, &out);
    std::strcpy(reinterpret_cast<char*>(out->msg.payload), "across");
    if (riomp_sock_send(client, out, sizeof *out, nullptr) != 0) return 5;
    rapidio_mport_socket_msg* in = nullptr;
    if (riomp_sock_receive(accepted, &in, 20000, nullptr) != 0) return 6;
    const bool same = std::strcmp(reinterpret_cast<char*>(in->msg.payload), "across") == 0;
    riomp_sock_release_send_buffer(client, out);
    riomp_sock_release_receive_buffer(accepted, in);
    riomp_sock_close(&client);
    riomp_sock_close(&accepted);
    riomp_sock_close(&listener);
    riomp_sock_mbox_destroy_handle(&mailbox);
    riomp_mgmt_free_mport_list(&list);
    return same ? 0 : 7;
}
)";
    const Fabric fabric("", 1);
    const std::string script = compile("c++17", "c++") + "cm.cpp -o cm -lmport -pthread && ./cm\n";
    EXPECT_EQ(run("cd '" + folder.path + "'\n" + script, folder), 0) << contents(folder.path + "/output");
}

/// Each of src/softrio/api/programs: what the original does, said by a program of its users.
class Original : public testing::TestWithParam<const char*> {};

TEST_P(Original, DoesTheSame) {
    const Folder folder;
    const std::string source =
        std::filesystem::absolute("src/softrio/api/programs/") / (GetParam() + std::string(".c"));
    const Fabric fabric(std::string(GetParam()) == "waits" && is_shm() ? "link=tsi721" : "", 2);
    // As many programs of the original do, they leave their handles to the end of the process.
    const std::string start = "ASAN_OPTIONS=\"${ASAN_OPTIONS:-}:detect_leaks=0\" ./one\n";
    const std::string script = compile("gnu11", "c") + "'" + source + "' -o one -lmport -lrsvdmem -pthread\n" + start;
    EXPECT_EQ(run("cd '" + folder.path + "'\n" + script, folder), 0) << contents(folder.path + "/output");
}
INSTANTIATE_TEST_SUITE_P(Programs, Original,
                         testing::Values("devices", "errors", "files", "forks", "memory", "names", "outbound",
                                         "strides", "waits"),
                         [](const auto& each) { return std::string(each.param); });

TEST(Programs, FirstProgramOfTheDocument) {
    const Folder folder;
    std::ofstream(folder.path + "/hello.c") << blocks("c");
    std::string commands = blocks("sh");
    // In this build's layout, in this test's folder.
    const auto replace = [&](const std::string& what, const std::string& by) {
        const std::size_t at = commands.find(what);
        ASSERT_NE(at, std::string::npos) << what;
        commands.replace(at, what.size(), by);
    };
    replace("$PWD/build/release/softrio", SOFTRIO_LAYOUT);
    replace("$(mktemp -d)", folder.path);
    const std::string compiler =
        std::string("cc() { '") + SOFTRIO_COMPILER + "' " + SOFTRIO_FLAGS + " -x c \"$@\"; }\n";
    EXPECT_EQ(run(compiler + commands, folder), 0) << contents(folder.path + "/output");
    const std::string output = contents(folder.path + "/output");
    EXPECT_NE(output.find("endpoint 6 says: hello, fabric\n"), std::string::npos) << output;
    EXPECT_NE(output.find("endpoint 6 says: over UDP\n"), std::string::npos) << output;
    EXPECT_NE(output.find("endpoint 6 says: again\n"), std::string::npos) << output;
}

/// From C, with the archives and what pkg-config --static says they need; and with nothing shared at all.
TEST(Programs, EveryArchiveLinksIntoCWithoutASharedLibrary) {
    const Folder folder;
    std::ofstream(folder.path + "/hello.c") << blocks("c");
    const std::string script =
        R"sh(
export PKG_CONFIG_PATH=')sh" SOFTRIO_LAYOUT R"sh(/lib/pkgconfig'
flags="-std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags softrio)"
needs="$(pkg-config --static --libs softrio)"
cc $flags hello.c -o archives -Wl,-Bstatic ${needs%%-lstdc++*} -Wl,-Bdynamic -lstdc++ ${needs#*-lstdc++}
cc $flags hello.c -o static -static $needs
if ldd archives | grep -E 'mport|rsvdmem|toml|fmt'; then exit 1; fi
if nm --defined-only --extern-only ')sh" SOFTRIO_LAYOUT
        R"sh(/lib/libmport.a' | grep -E ' [[:alpha:]] ' | grep -vE ' T (riomp|softrio)_'; then exit 1; fi
export RIO_FABRIC=shm:archives-$$
RIO_DESTID=5 ./archives > heard &
RIO_DESTID=6 ./static 5 "from an archive"
wait
cat heard
)sh";
    EXPECT_EQ(run("cd '" + folder.path + "'\n" + script, folder), 0) << contents(folder.path + "/output");
    EXPECT_NE(contents(folder.path + "/output").find("endpoint 6 says: from an archive\n"), std::string::npos)
        << contents(folder.path + "/output");
}

TEST(Programs, PkgConfigFileNamesTheLayout) {
    const std::string text = contents(std::string(SOFTRIO_LAYOUT) + "/lib/pkgconfig/softrio.pc");
    EXPECT_NE(text.find(std::string("prefix=") + SOFTRIO_LAYOUT), std::string::npos) << text;
    EXPECT_NE(text.find("-lmport -lrsvdmem"), std::string::npos) << text;
}

}  // namespace
}  // namespace incast::softrio
