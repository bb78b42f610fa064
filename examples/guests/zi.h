/* zABI 2.5 for guests of `millrace guest`: the calls of the host, and small helpers over them.
 *
 * The helpers are what the examples in this folder need, not a library: each is a few lines that you may copy and
 * change. All integers on the wire are little-endian, as those of wasm are. docs/guests.md explains the whole. */
#ifndef ZI_H
#define ZI_H

#include <stdint.h>

typedef int32_t zi_handle;
/* An address of the guest's memory, as calls and records carry it. */
typedef uint64_t zi_ptr;

#ifdef __wasm__
#define ZI_IMPORT(name) __attribute__((import_module("env"), import_name(#name)))
#define ZI_MAIN __attribute__((export_name("main")))
#else
#define ZI_IMPORT(name)
#define ZI_MAIN
#endif

/* ---- The calls. Negative results are errors. ---- */

ZI_IMPORT(zi_abi_version) uint32_t zi_abi_version(void);
ZI_IMPORT(zi_ctl) int32_t zi_ctl(zi_ptr request, uint32_t bytes, zi_ptr reply, uint32_t room);
ZI_IMPORT(zi_read) int32_t zi_read(zi_handle handle, zi_ptr to, uint32_t room);
ZI_IMPORT(zi_write) int32_t zi_write(zi_handle handle, zi_ptr from, uint32_t bytes);
ZI_IMPORT(zi_end) int32_t zi_end(zi_handle handle);
ZI_IMPORT(zi_alloc) zi_ptr zi_alloc(uint32_t bytes);
ZI_IMPORT(zi_free) int32_t zi_free(zi_ptr block);
ZI_IMPORT(zi_telemetry) int32_t zi_telemetry(zi_ptr topic, uint32_t topic_bytes, zi_ptr text, uint32_t text_bytes);
ZI_IMPORT(zi_cap_count) int32_t zi_cap_count(void);
ZI_IMPORT(zi_cap_get_size) int32_t zi_cap_get_size(int32_t index);
ZI_IMPORT(zi_cap_get) int32_t zi_cap_get(int32_t index, zi_ptr to, uint32_t room);
ZI_IMPORT(zi_cap_open) zi_handle zi_cap_open(zi_ptr request);
ZI_IMPORT(zi_handle_hflags) uint32_t zi_handle_hflags(zi_handle handle);

enum {
    ZI_E_INVALID = -1, ZI_E_BOUNDS = -2, ZI_E_NOENT = -3, ZI_E_DENIED = -4, ZI_E_CLOSED = -5,
    ZI_E_AGAIN = -6, ZI_E_NOSYS = -7, ZI_E_OOM = -8, ZI_E_IO = -9, ZI_E_INTERNAL = -10
};

/* Conditions of a watch. */
enum { ZI_READABLE = 1, ZI_WRITABLE = 2, ZI_HUP = 4, ZI_ERROR = 8 };

enum { ZI_FRAME_HEAD = 24, ZI_FRAME_MAX = 65536, ZI_FOREVER = -1 };

/* ---- Bytes and text ---- */

static inline zi_ptr zi_at(const void *place) { return (zi_ptr)(uintptr_t)place; }

static inline uint8_t *zi_put(uint8_t *to, const void *from, uint32_t bytes) {
    __builtin_memcpy(to, from, bytes);
    return to + bytes;
}
static inline uint8_t *zi_put32(uint8_t *to, uint32_t value) { return zi_put(to, &value, 4); }
static inline uint8_t *zi_put64(uint8_t *to, uint64_t value) { return zi_put(to, &value, 8); }
static inline uint32_t zi_get32(const uint8_t *from) {
    uint32_t value;
    __builtin_memcpy(&value, from, 4);
    return value;
}
static inline uint64_t zi_get64(const uint8_t *from) {
    uint64_t value;
    __builtin_memcpy(&value, from, 8);
    return value;
}

static inline uint32_t zi_length(const char *text) {
    uint32_t length = 0;
    while (text[length]) length++;
    return length;
}

/* A text with its length before it, as most payloads carry texts. */
static inline uint8_t *zi_put_text(uint8_t *to, const char *text, uint32_t bytes) {
    return zi_put(zi_put32(to, bytes), text, bytes);
}

/* Writes all bytes to a blocking handle: 1 is standard output, 2 standard error. */
static inline void zi_print_bytes(zi_handle handle, const char *text, uint32_t bytes) {
    while (bytes > 0) {
        int32_t written = zi_write(handle, zi_at(text), bytes);
        if (written <= 0) return;
        text += written;
        bytes -= (uint32_t)written;
    }
}
static inline void zi_print(zi_handle handle, const char *text) { zi_print_bytes(handle, text, zi_length(text)); }

static inline void zi_print_number(zi_handle handle, uint64_t number) {
    char digits[20];
    uint32_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    zi_print_bytes(handle, digits + at, (uint32_t)sizeof digits - at);
}

/* Returns the number that a text begins with, 0 if there is none. */
static inline uint64_t zi_number(const char *text) {
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++) number = number * 10 + (uint64_t)(*text - '0');
    return number;
}

/* ---- Capabilities ---- */

/* Opens a capability; returns its handle, or a negative error (-4: it was not granted). */
static inline zi_handle zi_open(const char *kind, const char *name, const void *params, uint32_t params_bytes) {
    uint8_t record[40], *to = record;
    to = zi_put32(zi_put64(to, zi_at(kind)), zi_length(kind));
    to = zi_put32(zi_put64(to, zi_at(name)), zi_length(name));
    to = zi_put32(to, 0);
    zi_put32(zi_put64(to, zi_at(params)), params_bytes);
    return zi_cap_open(zi_at(record));
}

/* Sends one request frame: the header, then the payload. Returns a negative error if it was not taken. */
static inline int32_t zi_send(zi_handle handle, uint16_t op, uint32_t rid, const void *payload, uint32_t bytes) {
    static uint8_t frame[ZI_FRAME_MAX];
    uint8_t *to = zi_put(frame, "ZCL1\1\0", 6);
    if (bytes > ZI_FRAME_MAX - ZI_FRAME_HEAD) return ZI_E_BOUNDS;
    to = zi_put32(zi_put(to, &op, 2), rid);
    to = zi_put32(zi_put32(zi_put32(to, 0), 0), bytes);
    zi_put(to, payload, bytes);
    int32_t written = zi_write(handle, zi_at(frame), ZI_FRAME_HEAD + bytes);
    return written < 0 ? written : 0;
}

/* A frame from the host; the payload is valid until the next one is read. */
struct zi_frame {
    uint16_t op;
    uint32_t rid, is_ok, bytes;
    const uint8_t *payload;
};

/* Reads one frame. Returns 1, or a negative error; -6 if there is none. */
static inline int32_t zi_receive(zi_handle handle, struct zi_frame *frame) {
    static uint8_t bytes[ZI_FRAME_MAX];
    int32_t count = zi_read(handle, zi_at(bytes), sizeof bytes);
    if (count < 0) return count;
    if (count < ZI_FRAME_HEAD) return ZI_E_INTERNAL;
    __builtin_memcpy(&frame->op, bytes + 6, 2);
    frame->rid = zi_get32(bytes + 8);
    frame->is_ok = zi_get32(bytes + 12);
    frame->bytes = zi_get32(bytes + 20);
    /* A read returns a whole frame if the buffer has room for the longest one. */
    if ((uint32_t)count != ZI_FRAME_HEAD + frame->bytes) return ZI_E_INTERNAL;
    frame->payload = bytes + ZI_FRAME_HEAD;
    return 1;
}

/* Sends a request and reads its reply. Returns 1, or a negative error; -1 too for an error frame. */
static inline int32_t zi_request(zi_handle handle, uint16_t op, uint32_t rid, const void *payload, uint32_t bytes,
                                 struct zi_frame *reply) {
    int32_t sent = zi_send(handle, op, rid, payload, bytes);
    if (sent < 0) return sent;
    int32_t got = zi_receive(handle, reply);
    if (got < 0) return got;
    return reply->is_ok ? 1 : ZI_E_INVALID;
}

/* ---- sys/loop ---- */

struct zi_event {
    uint32_t kind; /* 1 a watched handle is ready, 2 a timer is due */
    uint32_t conditions;
    zi_handle handle;
    uint64_t id; /* of the watch or the timer */
};
enum { ZI_READY = 1, ZI_TIMER = 2 };

static inline int32_t zi_watch(zi_handle loop, zi_handle handle, uint32_t conditions, uint64_t id) {
    uint8_t payload[20];
    struct zi_frame reply;
    zi_put32(zi_put64(zi_put32(zi_put32(payload, (uint32_t)handle), conditions), id), 0);
    return zi_request(loop, 1, 0, payload, sizeof payload, &reply);
}

static inline int32_t zi_unwatch(zi_handle loop, uint64_t id) {
    struct zi_frame reply;
    return zi_request(loop, 2, 0, &id, 8, &reply);
}

/* Due after `delay_ns`, then every `interval_ns`; once if that is 0. */
static inline int32_t zi_timer(zi_handle loop, uint64_t id, uint64_t delay_ns, uint64_t interval_ns) {
    uint8_t payload[28];
    struct zi_frame reply;
    zi_put32(zi_put64(zi_put64(zi_put64(payload, id), delay_ns), interval_ns), 1);
    return zi_request(loop, 3, 0, payload, sizeof payload, &reply);
}

static inline int32_t zi_timer_cancel(zi_handle loop, uint64_t id) {
    struct zi_frame reply;
    return zi_request(loop, 4, 0, &id, 8, &reply);
}

/* The one place where a guest blocks. Returns the number of events, or a negative error. */
static inline int32_t zi_poll(zi_handle loop, struct zi_event *events, uint32_t events_max, uint32_t timeout_ms) {
    uint8_t payload[8];
    struct zi_frame reply;
    zi_put32(zi_put32(payload, events_max), timeout_ms);
    int32_t done = zi_request(loop, 5, 0, payload, sizeof payload, &reply);
    if (done < 0) return done;
    uint32_t count = zi_get32(reply.payload + 8);
    for (uint32_t i = 0; i < count && i < events_max; i++) {
        const uint8_t *from = reply.payload + 16 + 32 * i;
        events[i].kind = zi_get32(from);
        events[i].conditions = zi_get32(from + 4);
        events[i].handle = (zi_handle)zi_get32(from + 8);
        events[i].id = zi_get64(from + 16);
    }
    return (int32_t)count;
}

/* ---- net/tcp ---- */

/* Listens; the port that was bound is written to `bound_port`. Returns a handle or a negative error. */
static inline zi_handle zi_listen(const char *host, uint32_t port, uint32_t *bound_port) {
    uint8_t params[32], *to = params;
    to = zi_put32(zi_put64(to, zi_at(host)), zi_length(host));
    to = zi_put32(zi_put32(to, port), 1);
    zi_put64(zi_put32(to, 0), zi_at(bound_port));
    return zi_open("net", "tcp", params, sizeof params);
}

/* Accepts one connection. Returns its handle, or a negative error; -6 if none waits. */
static inline zi_handle zi_accept(zi_handle listener) {
    uint8_t record[32];
    int32_t count = zi_read(listener, zi_at(record), sizeof record);
    return count < 0 ? count : (zi_handle)zi_get32(record);
}

/* ---- proc/argv ---- */

/* Copies an argument and ends it with a 0; the module's own name is argument 0. Returns 0 if there is none, or it does
 * not fit. */
static inline int zi_argument(uint32_t index, char *to, uint32_t room) {
    static uint8_t list[4096];
    uint32_t have = 0;
    zi_handle argv = zi_open("proc", "argv", 0, 0);
    if (argv < 0) return 0;
    for (int32_t count; (count = zi_read(argv, zi_at(list + have), sizeof list - have)) > 0;) have += (uint32_t)count;
    zi_end(argv);
    if (have < 8 || index >= zi_get32(list + 4)) return 0;
    uint32_t at = 8;
    for (;; index--) {
        if (at + 4 > have) return 0;
        uint32_t bytes = zi_get32(list + at);
        at += 4;
        if (bytes > have - at) return 0;
        if (index == 0) {
            if (bytes >= room) return 0;
            *zi_put((uint8_t *)to, list + at, bytes) = 0;
            return 1;
        }
        at += bytes;
    }
}

#endif
