/* A native guest that writes a file through file/aio, and waits for each completion in its loop. Argument: its path. */
#include "guest.h"

enum { AIO_OPEN = 1, AIO_CLOSE = 2, AIO_WRITE = 4, AIO_DONE = 100 };
enum { O_WRITE_BIT = 2, O_CREATE_BIT = 4 };

static uint8_t reply[4096];

/* Sends a request, whose acknowledgement is empty, and waits for its completion; returns the result. */
static uint32_t complete(zi_handle_t loop, zi_handle_t files, uint16_t op, const uint8_t *payload, uint32_t bytes) {
    int32_t count;
    CHECK_IS(request(files, op, payload, bytes, reply, sizeof reply), 0);
    CHECK(poll_one(loop, reply, sizeof reply) & READABLE);
    count = zi_read(files, ZI_PTR(reply), sizeof reply);
    CHECK(count >= 32);
    CHECK_IS(get32(reply + 4) >> 16, AIO_DONE);
    CHECK_IS(get32(reply + 12), 1);
    CHECK_IS(get32(reply + 24), op);
    return get32(reply + 28);
}

int main(int argc, char **argv) {
    const char *path = argv[argc - 1];
    /* The library copies path and data before zi_write returns: the block may be freed at once. */
    static const char text[] = "from a native guest\n";
    const uint32_t text_bytes = sizeof text - 1;
    zi_ptr_t block = zi_alloc(text_bytes);
    uint8_t payload[64];
    uint64_t file;
    zi_handle_t loop = open_cap("sys", "loop", NULL, 0);
    zi_handle_t files = open_cap("file", "aio", NULL, 0);
    CHECK(loop >= 3 && files >= 3 && block != 0);
    memcpy((void *)(uintptr_t)block, text, text_bytes);
    watch(loop, files, READABLE, 1);

    put32(put32(put32(put64(payload, ZI_PTR(path)), (uint32_t)strlen(path)), O_WRITE_BIT | O_CREATE_BIT), 0);
    complete(loop, files, AIO_OPEN, payload, 20);
    file = get64(reply + 32);

    put32(put32(put64(put64(put64(payload, file), 0), block), text_bytes), 0);
    CHECK_IS(complete(loop, files, AIO_WRITE, payload, 32), text_bytes);
    CHECK_IS(zi_free(block), 0);

    put64(payload, file);
    complete(loop, files, AIO_CLOSE, payload, 8);
    print("written\n");
    return 0;
}
