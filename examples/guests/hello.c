/* An HTTP server that greets: the path of each request is in the response.
 *
 *   millrace guest target/guests/hello.wasm --net loopback -- [PORT]
 *
 * PORT 0 (the default) lets the system choose. */
#include "zi.h"

enum { LISTEN = 1, RESPOND_INLINE = 11, EV_REQUEST = 100 };
enum { HTTP_WATCH = 1, PATH_BYTES_MAX = 1024 };

static zi_handle loop, http;

static int fail(const char *what) {
    zi_print(2, "hello: ");
    zi_print(2, what);
    zi_print(2, " failed\n");
    return 1;
}

/* Returns the bound port, 0 if listening failed. */
static uint32_t listen_on(uint32_t port) {
    uint8_t payload[64], *to = payload;
    struct zi_frame reply;
    to = zi_put_text(zi_put32(zi_put32(to, port), 0), "127.0.0.1", 9);
    if (zi_request(http, LISTEN, 0, payload, (uint32_t)(to - payload), &reply) < 0) return 0;
    return zi_get32(reply.payload + 4);
}

static void respond(uint32_t rid, const char *path, uint32_t path_bytes) {
    static uint8_t payload[PATH_BYTES_MAX + 256];
    uint8_t *to = zi_put32(zi_put32(payload, 200), 0);
    struct zi_frame reply;
    to = zi_put_text(zi_put_text(zi_put32(to, 1), "content-type", 12), "text/plain; charset=utf-8", 25);
    if (path_bytes > PATH_BYTES_MAX) path_bytes = PATH_BYTES_MAX;
    to = zi_put(zi_put32(to, 6 + path_bytes + 1), "hello ", 6);
    to = zi_put(zi_put(to, path, path_bytes), "\n", 1);
    /* A client that is gone meanwhile makes this an error frame, which concerns no other client. */
    zi_request(http, RESPOND_INLINE, rid, payload, (uint32_t)(to - payload), &reply);
}

ZI_MAIN int32_t guest_main(zi_handle request, zi_handle response) {
    struct zi_event event;
    struct zi_frame frame;
    char text[16];
    static char path[PATH_BYTES_MAX];
    uint32_t port = 0;
    (void)request, (void)response;
    if (zi_argument(1, text, sizeof text)) port = (uint32_t)zi_number(text);
    if ((loop = zi_open("sys", "loop", 0, 0)) < 0) return fail("opening sys/loop");
    if ((http = zi_open("net", "http", 0, 0)) < 0) return fail("opening net/http (granted by --net)");
    if (zi_watch(loop, http, ZI_READABLE, HTTP_WATCH) < 0) return fail("WATCH");
    if (!(port = listen_on(port))) return fail("LISTEN");
    zi_print(1, "listening on 127.0.0.1:");
    zi_print_number(1, port);
    zi_print(1, "\n");
    for (;;) {
        int32_t got = zi_receive(http, &frame);
        if (got == ZI_E_AGAIN) got = zi_poll(loop, &event, 1, (uint32_t)ZI_FOREVER);
        else if (got == 1 && frame.op == EV_REQUEST) {
            /* Listener, flags, then the method and the path, each with its length before it. */
            uint32_t at = 8 + 4 + zi_get32(frame.payload + 8);
            uint32_t bytes = zi_get32(frame.payload + at);
            uint32_t kept = bytes < PATH_BYTES_MAX ? bytes : PATH_BYTES_MAX;
            /* The next frame overwrites this one. */
            zi_put((uint8_t *)path, frame.payload + at + 4, kept);
            respond(frame.rid, path, kept);
        }
        if (got < 0) return fail("waiting");
    }
}
