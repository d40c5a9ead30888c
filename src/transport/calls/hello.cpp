#include "transport/calls/hello.h"

namespace incast::transport {

const char* to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::accepted:
            return "accepted";
        case Verdict::malformed:
            return "not an Incast hello";
        case Verdict::wrong_version:
            return "another version of this transport";
        case Verdict::wrong_run:
            return "another run";
        case Verdict::wrong_token:
            return "wrong token";
        case Verdict::wrong_node:
            return "meant for another node, or an earlier incarnation of this one";
        case Verdict::stale_incarnation:
            return "a later incarnation of that node is known";
        case Verdict::unfit:
            return "no path leads from its port to the one there: other kinds of link or of GID";
    }
    return "unknown verdict";
}

}  // namespace incast::transport
