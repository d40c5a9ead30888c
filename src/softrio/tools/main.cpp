#include "softrio/tools/tool.h"

int main(int argc, char** argv) {
    return incast::softrio::tools::run({argv + 1, argv + argc});
}
