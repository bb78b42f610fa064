/* What the native guests of these tests share: checks, packed numbers, requests of sys/loop. */
#ifndef GUEST_H
#define GUEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zi.h"

/* The guest ends with the line of the first check that fails. */
#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define CHECK_IS(call, expected)                                                                         \
    do {                                                                                                 \
        long long result_ = (long long)(call);                                                           \
        if (result_ != (long long)(expected)) {                                                          \
            fprintf(stderr, "%s:%d: %s is %lld, not %s\n", __FILE__, __LINE__, #call, result_, #expected); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

enum { OP_WATCH = 1, OP_UNWATCH = 2, OP_TIMER_ARM = 3, OP_TIMER_CANCEL = 4, OP_POLL = 5 };
enum { KIND_READY = 1, KIND_TIMER = 2 };
enum { READABLE = 1, WRITABLE = 2, HUP = 4, ERROR_BIT = 8 };
#define FOR_EVER UINT32_C(0xFFFFFFFF)

static inline uint8_t *put32(uint8_t *at, uint32_t value) {
    int i;
    for (i = 0; i < 4; i++) *at++ = (uint8_t)(value >> (8 * i));
    return at;
}

static inline uint8_t *put64(uint8_t *at, uint64_t value) {
    return put32(put32(at, (uint32_t)value), (uint32_t)(value >> 32));
}

static inline uint32_t get32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t get64(const uint8_t *at) { return get32(at) | (uint64_t)get32(at + 4) << 32; }

/* Writes a request frame; returns its bytes. */
static inline uint32_t put_frame(uint8_t *frame, uint16_t op, uint32_t rid, const uint8_t *payload, uint32_t bytes) {
    memcpy(frame, "ZCL1", 4);
    put32(frame + 4, 1 | (uint32_t)op << 16);
    put32(put32(put32(put32(frame + 8, rid), 0), 0), bytes);
    if (bytes > 0) memcpy(frame + 24, payload, bytes);
    return 24 + bytes;
}

static inline zi_handle_t open_cap(const char *kind, const char *name, const uint8_t *params, uint32_t params_bytes) {
    uint8_t request[40];
    uint8_t *at = put32(put64(request, ZI_PTR(kind)), (uint32_t)strlen(kind));
    at = put32(put64(at, ZI_PTR(name)), (uint32_t)strlen(name));
    at = put32(put64(put32(at, 0), ZI_PTR(params)), params_bytes);
    CHECK(at == request + 40);
    return zi_cap_open(ZI_PTR(request));
}

/* Sends a request to a handle that speaks ZCL1 and reads the reply frame; returns the bytes of its payload. */
static inline uint32_t request(zi_handle_t handle, uint16_t op, const uint8_t *payload, uint32_t bytes, uint8_t *reply,
                               uint32_t reply_bytes_max) {
    static uint32_t rid = 0;
    uint8_t frame[256];
    int32_t count;
    uint32_t frame_bytes = put_frame(frame, op, ++rid, payload, bytes);
    CHECK_IS(zi_write(handle, ZI_PTR(frame), frame_bytes), frame_bytes);
    count = zi_read(handle, ZI_PTR(reply), reply_bytes_max);
    CHECK(count >= 24);
    CHECK_IS(memcmp(reply, "ZCL1", 4), 0);
    CHECK_IS(get32(reply + 4) >> 16, op);
    CHECK_IS(get32(reply + 8), rid);
    CHECK_IS(get32(reply + 12), 1);
    CHECK_IS(get32(reply + 20), count - 24);
    return (uint32_t)count - 24;
}

static inline void watch(zi_handle_t loop, zi_handle_t handle, uint32_t events, uint64_t id) {
    uint8_t payload[20], reply[256];
    put32(put64(put32(put32(payload, (uint32_t)handle), events), id), 0);
    CHECK_IS(request(loop, OP_WATCH, payload, 20, reply, sizeof reply), 0);
}

static inline void unwatch(zi_handle_t loop, uint64_t id) {
    uint8_t payload[8], reply[256];
    put64(payload, id);
    CHECK_IS(request(loop, OP_UNWATCH, payload, 8, reply, sizeof reply), 0);
}

static inline void arm(zi_handle_t loop, uint64_t id, uint64_t after_ns) {
    uint8_t payload[28], reply[256];
    put32(put64(put64(put64(payload, id), after_ns), 0), 1);
    CHECK_IS(request(loop, OP_TIMER_ARM, payload, 28, reply, sizeof reply), 0);
}

/* Waits; returns the number of events, whose records begin at reply + 40. */
static inline uint32_t poll_loop(zi_handle_t loop, uint32_t max_events, uint32_t timeout_ms, uint8_t *reply,
                                 uint32_t reply_bytes_max) {
    uint8_t payload[8];
    uint32_t bytes, count;
    put32(put32(payload, max_events), timeout_ms);
    bytes = request(loop, OP_POLL, payload, 8, reply, reply_bytes_max);
    CHECK(bytes >= 16);
    count = get32(reply + 24 + 8);
    CHECK_IS(bytes, 16 + 32 * count);
    return count;
}

/* Waits for one event, however often the wait ends early. */
static inline uint32_t poll_one(zi_handle_t loop, uint8_t *reply, uint32_t reply_bytes_max) {
    while (poll_loop(loop, 1, FOR_EVER, reply, reply_bytes_max) == 0) {
    }
    return get32(reply + 40 + 4);
}

static inline zi_handle_t connect_to(uint32_t port) {
    const char *host = "127.0.0.1";
    uint8_t params[20];
    put32(put32(put32(put64(params, ZI_PTR(host)), (uint32_t)strlen(host)), port), 0);
    return open_cap("net", "tcp", params, sizeof params);
}

static inline void print(const char *text) {
    uint32_t bytes = (uint32_t)strlen(text), done = 0;
    while (done < bytes) {
        int32_t count = zi_write(1, ZI_PTR(text + done), bytes - done);
        CHECK(count > 0);
        done += (uint32_t)count;
    }
}

#endif
