/* A native guest: prints its arguments, waits for a timer, sends a line from its standard input to a server, and prints
 * what the server returns. Arguments: the server's port, then anything. */
#include "guest.h"

static uint8_t reply[4096];

/* Reads a whole byte stream. */
static uint32_t read_all(zi_handle_t handle, uint8_t *to, uint32_t bytes_max) {
    uint32_t done = 0;
    for (;;) {
        int32_t count = zi_read(handle, ZI_PTR(to + done), bytes_max - done);
        CHECK(count >= 0 && done + (uint32_t)count < bytes_max);
        if (count == 0) return done;
        done += (uint32_t)count;
    }
}

static void print_arguments(void) {
    static uint8_t list[65536];
    zi_handle_t handle = open_cap("proc", "argv", NULL, 0);
    uint32_t bytes, count, i;
    const uint8_t *at = list + 8;
    CHECK(handle >= 3);
    CHECK_IS(zi_handle_hflags(handle), ZI_H_READABLE | ZI_H_ENDABLE);
    bytes = read_all(handle, list, sizeof list);
    CHECK_IS(get32(list), 1);
    count = get32(list + 4);
    for (i = 0; i < count; i++) {
        char line[512];
        uint32_t length = get32(at);
        CHECK(length < 256);
        sprintf(line, "argument %u: %.*s\n", (unsigned)i, (int)length, (const char *)at + 4);
        if (i > 0) print(line);
        at += 4 + length;
    }
    CHECK(at == list + bytes);
    CHECK_IS(zi_end(handle), 0);
    CHECK_IS(zi_end(handle), ZI_E_NOSYS);
}

static void wait_for_timer(zi_handle_t loop) {
    arm(loop, 7, UINT64_C(20000000));
    CHECK_IS(poll_loop(loop, 8, FOR_EVER, reply, sizeof reply), 1);
    CHECK_IS(get32(reply + 40), KIND_TIMER);
    CHECK_IS(get64(reply + 56), 7);
    CHECK_IS(poll_loop(loop, 8, 0, reply, sizeof reply), 0);
    print("timer 7\n");
}

static void echo(zi_handle_t loop, uint32_t port) {
    char line[256], back[256];
    int32_t length = zi_read(0, ZI_PTR(line), sizeof line);
    int32_t done = 0;
    zi_handle_t stream = connect_to(port);
    CHECK(length > 0);
    CHECK(stream >= 3);

    watch(loop, stream, WRITABLE, 1);
    CHECK(poll_one(loop, reply, sizeof reply) & WRITABLE);
    CHECK_IS(get32(reply + 40 + 8), stream);
    CHECK_IS(get64(reply + 40 + 16), 1);
    CHECK_IS(zi_write(stream, ZI_PTR(line), (uint32_t)length), length);
    unwatch(loop, 1);

    watch(loop, stream, READABLE, 2);
    while (done < length) {
        int32_t count;
        CHECK(poll_one(loop, reply, sizeof reply) & READABLE);
        count = zi_read(stream, ZI_PTR(back + done), (uint32_t)(length - done));
        CHECK(count > 0);
        done += count;
    }
    CHECK_IS(memcmp(line, back, (size_t)length), 0);
    CHECK_IS(zi_end(stream), 0);
    print("echo: ");
    CHECK_IS(zi_write(1, ZI_PTR(back), (uint32_t)done), done);
}

int main(int argc, char **argv) {
    zi_handle_t loop;
    CHECK(argc >= 2);
    CHECK_IS(zi_abi_version(), ZI_ABI_VERSION);
    print_arguments();
    loop = open_cap("sys", "loop", NULL, 0);
    CHECK(loop >= 3);
    wait_for_timer(loop);
    echo(loop, (uint32_t)atoi(argv[1]));
    CHECK_IS(zi_end(loop), 0);
    return 0;
}
