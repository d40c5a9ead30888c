/* Three processes on two ports: a server that forks for each connection takes files from two senders, of which one
 * shares the server's port. A file goes as messages to agree, by DMA into a window of the server's, and a doorbell at
 * its end. What arrives is what was sent, byte for byte. */
#include "check.h"

enum { channel = 80, window_bytes = 1 << 16, window_of = 0x30000000, senders = 2 };

struct note {
    char name[64];
    uint32_t bytes;
    uint32_t place;
};

static struct note* note_of(rapidio_mport_socket_msg* message) {
    return (struct note*)(void*)message->msg.payload;
}

static void write_file(const char* name, const unsigned char* bytes, size_t size) {
    FILE* file = fopen(name, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static size_t read_file(const char* name, unsigned char* bytes, size_t room) {
    FILE* file = fopen(name, "rb");
    CHECK(file != NULL);
    const size_t size = fread(bytes, 1, room, file);
    CHECK(fclose(file) == 0);
    return size;
}

/* One connection: each message names a piece that lies in this connection's half of the window. */
static void take(riomp_sock_t connection, const unsigned char* memory, uint32_t place) {
    rapidio_mport_socket_msg* message = NULL;
    CHECK(riomp_sock_request_send_buffer(connection, &message) == 0);
    note_of(message)->place = place;
    CHECK(riomp_sock_send(connection, message, sizeof *message, NULL) == 0);
    FILE* file = NULL;
    while (riomp_sock_receive(connection, &message, 20000, NULL) == 0) {
        const struct note* piece = note_of(message);
        if (file == NULL) file = fopen(piece->name, "wb");
        CHECK(file != NULL);
        CHECK(fwrite(memory + place, 1, piece->bytes, file) == piece->bytes);
        CHECK(riomp_sock_send(connection, message, sizeof *message, NULL) == 0);
    }
    CHECK(file != NULL && fclose(file) == 0);
    CHECK(riomp_sock_release_receive_buffer(connection, message) == 0);
    CHECK(riomp_sock_close(&connection) == 0);
}

static void send_file(uint32_t number, did_val_t to, const char* name, const char* copy) {
    static unsigned char bytes[window_bytes * 8];
    const uint32_t size = (uint32_t)read_file(name, bytes, sizeof bytes);
    riomp_mport_t port = open_port(number, NULL);
    riomp_sock_t connection = make_socket(open_mailbox((uint8_t)number));
    CHECK(riomp_sock_connect(connection, to, channel, NULL) == 0);
    rapidio_mport_socket_msg* message = NULL;
    CHECK(riomp_sock_request_send_buffer(connection, &message) == 0);
    CHECK(riomp_sock_receive(connection, &message, 20000, NULL) == 0);
    const uint32_t place = note_of(message)->place, room = window_bytes / senders;
    for (uint32_t done = 0; done < size; done += note_of(message)->bytes) {
        const uint32_t piece = size - done < room ? size - done : room;
        CHECK(riomp_dma_write(port, to, window_of + place, bytes + done, piece, RIO_DIRECTIO_TYPE_NWRITE_R,
                              RIO_DIRECTIO_TRANSFER_SYNC, NULL) == 0);
        snprintf(note_of(message)->name, sizeof note_of(message)->name, "%s", copy);
        note_of(message)->bytes = piece;
        CHECK(riomp_sock_send(connection, message, sizeof *message, NULL) == 0);
        CHECK(riomp_sock_receive(connection, &message, 20000, NULL) == 0);
    }
    CHECK(riomp_sock_close(&connection) == 0);
    struct riomp_mgmt_event event = {.header = RIO_EVENT_DOORBELL, .u.doorbell = {to, (uint16_t)(100 + number)}};
    CHECK(riomp_mgmt_send_event(port, &event) == 0);
}

int main(void) {
    static unsigned char bytes[window_bytes * 8], back[window_bytes * 8];
    const uint32_t sizes[senders] = {window_bytes * 3 + 17, window_bytes * 7 + 1};
    const char *names[senders] = {"first", "second"}, *copies[senders] = {"first.copy", "second.copy"};
    for (int sender = 0; sender < senders; ++sender) {
        for (uint32_t index = 0; index < sizes[sender]; ++index)
            bytes[index] = (unsigned char)((index * 2654435761U + (uint32_t)sender) >> 13);
        write_file(names[sender], bytes, sizes[sender]);
    }
    did_val_t own = 0;
    riomp_mport_t port = open_port(0, &own);
    uint64_t base = window_of, memory = RIOMP_MAP_ANY_ADDR;
    void* mapped = NULL;
    CHECK(riomp_dma_ibwin_map(port, &base, window_bytes, &memory) == 0);
    CHECK(riomp_dma_map_memory(port, window_bytes, (off_t)memory, &mapped) == 0);
    CHECK(riomp_mgmt_dbrange_enable(port, 0xffff, 100, 101) == 0);
    CHECK(riomp_mgmt_set_event_mask(port, RIO_EVENT_DOORBELL) == 0);
    riomp_mailbox_t mailbox = open_mailbox(0);
    riomp_sock_t listener = listen_at(mailbox, channel);

    pid_t sending[senders], taking[senders];
    for (int sender = 0; sender < senders; ++sender) {
        sending[sender] = fork();
        if (sending[sender] == 0) {
            send_file((uint32_t)sender, own, names[sender],
                      copies[sender]); /* of port 0, the server's, and of port 1 */
            exit(0);
        }
    }
    for (int sender = 0; sender < senders; ++sender) {
        riomp_sock_t connection = make_socket(mailbox);
        CHECK(riomp_sock_accept(listener, &connection, 20000, NULL) == 0);
        taking[sender] = fork();
        if (taking[sender] == 0) {
            take(connection, mapped, (uint32_t)sender * window_bytes / senders);
            exit(0);
        }
        free(connection);
    }
    struct riomp_mgmt_event event;
    unsigned heard = 0;
    for (int sender = 0; sender < senders; ++sender) {
        CHECK(riomp_mgmt_get_event(port, &event) == 0);
        heard |= 1U << (event.u.doorbell.payload - 100);
    }
    CHECK(heard == 3);
    for (int sender = 0; sender < senders; ++sender) {
        CHECK(end_of(sending[sender]) == 0);
        CHECK(end_of(taking[sender]) == 0);
    }
    for (int sender = 0; sender < senders; ++sender) {
        const size_t size = read_file(names[sender], bytes, sizeof bytes);
        CHECK(size == sizes[sender] && read_file(copies[sender], back, sizeof back) == size);
        CHECK(memcmp(bytes, back, size) == 0);
    }
    return 0;
}
