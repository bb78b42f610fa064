/* Subscribes to a topic, then does what the lines of its standard input say:
 *
 *   take N      reads N events and prints the data of each as a line
 *   count N     reads N events and prints how many bytes their data has
 *   say TEXT    publishes TEXT, and prints the reply
 *   leave       ends the subscription
 *
 *   millrace guest gather.wasm --allow event/bus ... -- TOPIC */
#include "zi.h"

enum { SUBSCRIBE = 1, UNSUBSCRIBE = 2, PUBLISH = 3, EVENT = 100 };

/* Events come on `bus`; what is said goes through `mouth`, so that its reply is the only frame there. */
static zi_handle loop, bus, mouth;
static char topic[256], line[4096];

static void show(const uint8_t *text, uint32_t bytes) {
    zi_write(1, zi_at(text), bytes);
    zi_print(1, "\n");
}

static void show_error(const struct zi_frame *frame) {
    /* Trace, message. */
    uint32_t trace = zi_get32(frame->payload);
    const uint8_t *message = frame->payload + 4 + trace;
    zi_print(1, "error: ");
    zi_write(1, zi_at(frame->payload + 4), trace);
    zi_print(1, ": ");
    show(message + 4, zi_get32(message));
}

/* Waits for the next frame of the bus. Returns 0 when the bus is gone. */
static int next(struct zi_frame *frame) {
    struct zi_event event;
    for (;;) {
        int32_t got = zi_receive(bus, frame);
        if (got == 1) return 1;
        if (got != ZI_E_AGAIN) return 0;
        if (zi_poll(loop, &event, 1, (uint32_t)ZI_FOREVER) < 0) return 0;
    }
}

static int take(uint64_t count, int is_shown) {
    struct zi_frame frame;
    uint64_t sum = 0;
    for (uint64_t taken = 0; taken < count;) {
        if (!next(&frame)) {
            zi_print(1, "gone\n");
            return 0;
        }
        if (frame.op != EVENT) continue;
        uint32_t at = 8 + zi_get32(frame.payload + 4);
        uint32_t bytes = zi_get32(frame.payload + at);
        if (is_shown) show(frame.payload + at + 4, bytes);
        sum += bytes;
        taken++;
    }
    if (!is_shown) {
        zi_print_number(1, sum);
        zi_print(1, " bytes\n");
    }
    return 1;
}

static void say(const char *text, uint32_t bytes) {
    static uint8_t payload[8192];
    struct zi_frame reply;
    uint8_t *to = zi_put_text(payload, topic, zi_length(topic));
    to = zi_put_text(to, text, bytes);
    zi_send(mouth, PUBLISH, 7, payload, (uint32_t)(to - payload));
    if (zi_receive(mouth, &reply) != 1) {
        zi_print(1, "no reply\n");
        return;
    }
    if (!reply.is_ok) {
        show_error(&reply);
        return;
    }
    zi_print(1, "published to ");
    zi_print_number(1, zi_get32(reply.payload));
    zi_print(1, "\n");
}

static uint32_t read_line(void) {
    uint32_t bytes = 0;
    while (bytes < sizeof line - 1 && zi_read(0, zi_at(line + bytes), 1) == 1)
        if (line[bytes++] == '\n') break;
    line[bytes] = 0;
    return bytes;
}

static int begins(const char *with) {
    uint32_t at = 0;
    while (with[at] && line[at] == with[at]) at++;
    return !with[at];
}

ZI_MAIN int32_t guest_main(zi_handle request, zi_handle response) {
    uint8_t payload[512], *to;
    struct zi_frame reply;
    (void)request, (void)response;
    if (!zi_argument(1, topic, sizeof topic)) return 2;
    if ((loop = zi_open("sys", "loop", 0, 0)) < 0 || (bus = zi_open("event", "bus", 0, 0)) < 0) return 3;
    if ((mouth = zi_open("event", "bus", 0, 0)) < 0) return 3;
    if (zi_watch(loop, bus, ZI_READABLE, 1) < 0) return 3;
    to = zi_put32(zi_put_text(payload, topic, zi_length(topic)), 0);
    zi_send(bus, SUBSCRIBE, 1, payload, (uint32_t)(to - payload));
    if (!next(&reply) || reply.op != SUBSCRIBE) return 4;
    if (!reply.is_ok) {
        show_error(&reply);
        return 5;
    }
    uint32_t subscription = zi_get32(reply.payload);
    zi_print(1, "subscribed\n");
    for (uint32_t bytes; (bytes = read_line());) {
        if (begins("take ")) {
            if (!take(zi_number(line + 5), 1)) return 6;
        } else if (begins("count ")) {
            if (!take(zi_number(line + 6), 0)) return 6;
        } else if (begins("say ")) {
            say(line + 4, bytes - 5);
        } else if (begins("leave")) {
            zi_request(bus, UNSUBSCRIBE, 2, &subscription, 4, &reply);
            zi_print(1, "left\n");
        }
    }
    return 0;
}
