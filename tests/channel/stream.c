/* Two programs exchange checksummed bytes over the C interface of ring channels.
 *     stream serve ADDRESS BYTES      says where it listens, and takes one channel
 *     stream join ADDRESS BYTES [BIND]
 * Each writes BYTES of a stream that depends on its part, and reads those of the other. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <incast/channel.h>

static const int patience_ms = 30000;

static unsigned char byte_at(int part, uint64_t position) {
    const uint64_t mixed = (position / 7 + (uint64_t)part * 1000003U) * UINT64_C(0x9E3779B97F4A7C15);
    return (unsigned char)(mixed >> (position % 7 * 8));
}

static int failed(const char* what) {
    fprintf(stderr, "%s: %s\n", what, incast_channel_message());
    return 1;
}

static int exchange(incast_channel* channel, int part, uint64_t bytes) {
    static unsigned char out[60000];
    static unsigned char in[50000];
    uint64_t written = 0;
    uint64_t has_read = 0;
    int has_ended = 0;
    while (!has_ended || written < bytes) {
        size_t want = sizeof out;
        int64_t done = 0;
        if (want > bytes - written) want = (size_t)(bytes - written);
        for (size_t at = 0; at < want; ++at)
            out[at] = byte_at(part, written + at);
        if (want > 0) {
            done = incast_channel_write(channel, out, want, has_ended ? patience_ms : 0);
            if (done < 0 && (done != -EAGAIN || has_ended)) return failed("write");
            if (done > 0) written += (uint64_t)done;
            if (written == bytes && incast_channel_finish(channel) != 0) return failed("finish");
        }
        if (has_ended) continue;
        done = incast_channel_read(channel, in, sizeof in, want > 0 ? 1 : patience_ms);
        if (done == -EAGAIN && want > 0) continue;
        if (done < 0) return failed("read");
        for (int64_t at = 0; at < done; ++at)
            if (in[at] != byte_at(1 - part, has_read + (uint64_t)at)) {
                fprintf(stderr, "byte %" PRIu64 " is wrong\n", has_read + (uint64_t)at);
                return 1;
            }
        has_read += (uint64_t)done;
        has_ended = done == 0;
    }
    if (has_read != bytes || written != bytes) {
        fprintf(stderr, "read %" PRIu64 ", wrote %" PRIu64 " of %" PRIu64 "\n", has_read, written, bytes);
        return 1;
    }
    return 0;
}

int main(int count, char** words) {
    incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
    incast_channel_hub* hub = NULL;
    incast_channel* channel = NULL;
    int status = 1;
    if (count != 4 && count != 5) return 2;
    if (count == 5) options.bind = words[4];
    const int serves = strcmp(words[1], "serve") == 0;
    if (incast_channel_hub_make(words[2], &options, &hub) != 0) return failed("hub");
    if (serves) {
        incast_channel_listener* listener = NULL;
        if (incast_channel_listen(hub, words[2], NULL, &listener) != 0) return failed("listen");
        printf("%s\n", incast_channel_listener_address(listener));
        fflush(stdout);
        if (incast_channel_accept(listener, patience_ms, &channel) != 0) return failed("accept");
    } else {
        if (incast_channel_connect(hub, words[2], NULL, &channel) != 0) return failed("connect");
        if (incast_channel_wait_open(channel, patience_ms) != 1) return failed("open");
    }
    status = exchange(channel, serves, strtoull(words[3], NULL, 10));
    incast_channel_close(channel);
    if (incast_channel_hub_drain(hub, patience_ms) != 0) status = failed("drain");
    incast_channel_hub_free(hub);
    return status;
}
