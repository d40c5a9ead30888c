// Lines for whoever watches a run, on standard output or standard error. A display never ends or holds up data taking:
// a reader that is gone is forgotten, and one that does not keep up misses samples.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace incast::runtime {

class Display {
public:
    explicit Display(int descriptor) : descriptor_(descriptor) {}
    /// Waits until a reader that is there has everything; a second interrupt ends the wait.
    ~Display();
    Display(const Display&) = delete;
    Display& operator=(const Display&) = delete;

    enum class Worth : std::uint8_t { always, while_read };
    /// One or more lines without the last line end. Does not block. `while_read`: left out while the reader is far
    /// behind.
    void line(std::string_view text, Worth worth = Worth::always);

private:
    void push(int timeout_ms);

    int descriptor_;
    std::string waiting_;  // from whole lines, of which the first may have gone out in part
    bool gone_ = false;
};

/// Opens /dev/null in the place of standard input, output and error where they are closed, so that no other file gets
/// their numbers. A closed pipe and a limit on the size of files are errors from now on, and end no process.
void prepare_descriptors();

}  // namespace incast::runtime
