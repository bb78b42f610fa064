/* Copies a file through file/aio, waiting in sys/loop for each completion.
 *
 *   millrace guest target/guests/copy.wasm --dir FOLDER -- /SOURCE /TARGET
 *
 * Both paths are inside FOLDER, which the guest sees as /. */
#include "zi.h"

enum { OPEN = 1, CLOSE = 2, READ = 3, WRITE = 4, EV_DONE = 100 };
enum { FLAG_READ = 1, FLAG_WRITE = 2, FLAG_CREATE = 4, FLAG_TRUNCATE = 8 };
enum { CHUNK_BYTES = 60000, AIO_WATCH = 1 };

static zi_handle loop, aio;
static uint32_t next_rid = 1;

static int fail(const char *what, const char *path) {
    zi_print(2, "copy: cannot ");
    zi_print(2, what);
    zi_print(2, " ");
    zi_print(2, path);
    zi_print(2, "\n");
    return 1;
}

static int is_same(const char *one, const char *other) {
    while (*one && *one == *other) one++, other++;
    return *one == *other;
}

/* Submits a request and waits until it is done. Returns 1 if it succeeded; its result is in `done`. */
static int execute(uint16_t op, const void *payload, uint32_t bytes, struct zi_frame *done) {
    struct zi_event event;
    uint32_t rid = next_rid++;
    if (zi_request(aio, op, rid, payload, bytes, done) < 0) return 0;
    for (;;) {
        int32_t got = zi_receive(aio, done);
        if (got == 1 && done->op == EV_DONE && done->rid == rid) return done->is_ok != 0;
        if (got == ZI_E_AGAIN) got = zi_poll(loop, &event, 1, (uint32_t)ZI_FOREVER);
        if (got < 0) return 0;
    }
}

/* Returns the id of the open file, 0 if it could not be opened. */
static uint64_t open_file(const char *path, uint32_t flags) {
    uint8_t payload[20];
    struct zi_frame done;
    zi_put32(zi_put32(zi_put32(zi_put64(payload, zi_at(path)), zi_length(path)), flags), 0);
    return execute(OPEN, payload, sizeof payload, &done) ? zi_get64(done.payload + 8) : 0;
}

static int close_file(uint64_t file) {
    struct zi_frame done;
    return execute(CLOSE, &file, 8, &done);
}

/* Returns the number of bytes that were read, -1 if reading failed. */
static int64_t read_chunk(uint64_t file, uint64_t offset, uint8_t *to) {
    uint8_t payload[24];
    struct zi_frame done;
    zi_put32(zi_put32(zi_put64(zi_put64(payload, file), offset), CHUNK_BYTES), 0);
    if (!execute(READ, payload, sizeof payload, &done)) return -1;
    uint32_t count = zi_get32(done.payload + 4);
    zi_put(to, done.payload + 8, count);
    return count;
}

static int write_chunk(uint64_t file, uint64_t offset, const uint8_t *from, uint32_t bytes) {
    while (bytes > 0) {
        uint8_t payload[32];
        struct zi_frame done;
        zi_put32(zi_put32(zi_put64(zi_put64(zi_put64(payload, file), offset), zi_at(from)), bytes), 0);
        if (!execute(WRITE, payload, sizeof payload, &done)) return 0;
        uint32_t count = zi_get32(done.payload + 4);
        if (count == 0 || count > bytes) return 0;
        offset += count;
        from += count;
        bytes -= count;
    }
    return 1;
}

ZI_MAIN int32_t guest_main(zi_handle request, zi_handle response) {
    static uint8_t chunk[CHUNK_BYTES];
    char source[256], target[256];
    (void)request;
    if (!zi_argument(1, source, sizeof source) || !zi_argument(2, target, sizeof target)) {
        zi_print(2, "copy: give two paths: copy.wasm --dir FOLDER -- /SOURCE /TARGET\n");
        return 2;
    }
    if ((loop = zi_open("sys", "loop", 0, 0)) < 0) return fail("open", "sys/loop");
    if ((aio = zi_open("file", "aio", 0, 0)) < 0) return fail("open", "file/aio: grant it with --dir");
    if (zi_watch(loop, aio, ZI_READABLE, AIO_WATCH) < 0) return fail("watch", "file/aio");

    /* Opening the target empties it. */
    if (is_same(source, target)) return fail("copy onto itself:", source);
    uint64_t from = open_file(source, FLAG_READ);
    if (!from) return fail("open", source);
    uint64_t to = open_file(target, FLAG_WRITE | FLAG_CREATE | FLAG_TRUNCATE);
    if (!to) return fail("open", target);
    uint64_t copied = 0;
    for (;;) {
        int64_t count = read_chunk(from, copied, chunk);
        if (count < 0) return fail("read", source);
        if (count == 0) break;
        if (!write_chunk(to, copied, chunk, (uint32_t)count)) return fail("write", target);
        copied += (uint64_t)count;
    }
    if (!close_file(from)) return fail("close", source);
    if (!close_file(to)) return fail("close", target);
    zi_print(1, "copied ");
    zi_print_number(1, copied);
    zi_print(1, " bytes\n");
    zi_end(response);
    return 0;
}
