/* A native guest that checks the rules of the core calls: addresses, lengths, handles, blocks, lists. */
#include "guest.h"

static uint8_t buffer[4096];

static void addresses_and_lengths(void) {
    static const char text[] = "x";
    CHECK_IS(zi_write(1, 0, 1), ZI_E_BOUNDS);
    CHECK_IS(zi_read(0, 0, 1), ZI_E_BOUNDS);
    CHECK_IS(zi_write(1, 0, 0), 0);
    CHECK_IS(zi_read(0, 0, 0), 0);
    CHECK_IS(zi_write(1, UINT64_MAX, 2), ZI_E_BOUNDS);
    CHECK_IS(zi_cap_open(0), ZI_E_BOUNDS);
    CHECK_IS(zi_cap_open(UINT64_MAX - 8), ZI_E_BOUNDS);
    CHECK_IS(zi_ctl(0, 24, ZI_PTR(buffer), sizeof buffer), ZI_E_BOUNDS);
    CHECK_IS(zi_telemetry(0, 1, ZI_PTR(text), 1), ZI_E_BOUNDS);
    CHECK_IS(zi_telemetry(ZI_PTR("a \"topic\""), 9, ZI_PTR("a message"), 9), 0);
}

static void handles(void) {
    CHECK_IS(zi_read(77, ZI_PTR(buffer), 1), ZI_E_NOSYS);
    CHECK_IS(zi_write(-1, ZI_PTR(buffer), 1), ZI_E_NOSYS);
    CHECK_IS(zi_end(77), ZI_E_NOSYS);
    CHECK_IS(zi_handle_hflags(77), 0);
    CHECK_IS(zi_end(1), 0);
    CHECK_IS(zi_read(1, ZI_PTR(buffer), 1), ZI_E_DENIED);
    CHECK_IS(zi_write(0, ZI_PTR(buffer), 1), ZI_E_DENIED);
    CHECK(zi_handle_hflags(0) & ZI_H_READABLE);
    CHECK(zi_handle_hflags(1) & ZI_H_WRITABLE);
    CHECK_IS(zi_read(0, ZI_PTR(buffer), sizeof buffer), 0);
}

static void blocks(void) {
    zi_ptr_t block = zi_alloc(1000);
    char *bytes = (char *)(uintptr_t)block;
    CHECK(block != 0 && block % 16 == 0);
    CHECK(bytes[0] == 0 && bytes[999] == 0);
    memset(bytes, 'z', 1000);
    CHECK_IS(zi_free(block + 16), ZI_E_INVALID);
    CHECK_IS(zi_free(block), 0);
    CHECK_IS(zi_free(block), ZI_E_INVALID);
    CHECK_IS(zi_free(0), ZI_E_INVALID);
    CHECK_IS(zi_alloc(0), 0);
}

static void capabilities(void) {
    int32_t i, count = zi_cap_count();
    uint32_t bytes;
    CHECK_IS(zi_cap_get(count, ZI_PTR(buffer), sizeof buffer), ZI_E_NOENT);
    CHECK_IS(zi_cap_get_size(-1), ZI_E_NOENT);
    for (i = 0; i < count; i++) {
        char line[64];
        uint32_t kind_bytes;
        int32_t size = zi_cap_get_size(i);
        CHECK_IS(zi_cap_get(i, ZI_PTR(buffer), (uint32_t)size - 1), ZI_E_BOUNDS);
        CHECK_IS(zi_cap_get(i, 0, (uint32_t)size), ZI_E_BOUNDS);
        CHECK_IS(zi_cap_get(i, ZI_PTR(buffer), sizeof buffer), size);
        kind_bytes = get32(buffer);
        sprintf(line, "%.*s/%.*s\n", (int)kind_bytes, (char *)buffer + 4, (int)get32(buffer + 4 + kind_bytes),
                (char *)buffer + 8 + kind_bytes);
        print(line);
    }
    /* CAPS_LIST names as many. */
    bytes = put_frame(buffer, 1, 5, NULL, 0);
    CHECK(zi_ctl(ZI_PTR(buffer), bytes, ZI_PTR(buffer), sizeof buffer) >= 32);
    CHECK_IS(get32(buffer + 12), 1);
    CHECK_IS(get32(buffer + 28), count);
    CHECK_IS(open_cap("no", "such", NULL, 0), ZI_E_NOENT);
}

/* The bound port is written to the program's own memory. */
static void listener(void) {
    uint8_t params[32];
    uint8_t port[4] = {0, 0, 0, 0};
    const char *host = "127.0.0.1";
    zi_handle_t handle;
    put64(put32(put32(put32(put32(put64(params, ZI_PTR(host)), 9), 0), 1), 0), ZI_PTR(port));
    handle = open_cap("net", "tcp", params, sizeof params);
    if (handle == ZI_E_DENIED) {
        print("no listener\n");
        return;
    }
    CHECK(handle >= 3);
    CHECK(get32(port) > 0 && get32(port) < 65536);
    CHECK_IS(zi_read(handle, ZI_PTR(buffer), sizeof buffer), ZI_E_AGAIN);
    CHECK_IS(zi_end(handle), 0);
}

int main(void) {
    capabilities();
    addresses_and_lengths();
    handles();
    blocks();
    listener();
    return 0;
}
