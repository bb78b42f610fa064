/* A chat server: what a client writes reaches every client, by way of event/bus. Each client has a bus handle of its own
 * that is subscribed to the room, so the server never walks a list of clients.
 *
 *   millrace guest target/guests/chat.wasm --net loopback --allow event/bus [--url ws://HOST:PORT/] -- [PORT]
 *
 * With --url, chat servers that use the same Millrace server are one room. PORT 0 (the default) lets the system choose. */
#include "zi.h"

enum { SUBSCRIBE = 1, PUBLISH = 3, EVENT = 100 };
enum { CLIENTS_MAX = 64, LINE_BYTES_MAX = 1024, OUTPUT_BYTES_MAX = 65536, EVENTS_MAX = 32 };
/* Ids of watches: two for each client, its socket and its bus handle. */
enum { LISTENER_WATCH = 1, SOCKET_WATCH = 100, BUS_WATCH = 200 };

#define ROOM "room"
#define REFUSED "(nobody heard your last line)\n"

struct client {
    zi_handle socket, bus; /* 0: the place is free */
    uint32_t line_bytes; /* of a line that is not complete yet */
    uint32_t out_bytes; /* that the socket has not taken yet */
    uint32_t conditions; /* of the socket's watch */
    char line[LINE_BYTES_MAX];
    uint8_t out[OUTPUT_BYTES_MAX];
};

static struct client clients[CLIENTS_MAX];
static zi_handle loop, listener;

static int fail(const char *what) {
    zi_print(2, "chat: ");
    zi_print(2, what);
    zi_print(2, " failed\n");
    return 1;
}

static uint64_t place(const struct client *client) { return (uint64_t)(client - clients); }

static void leave(struct client *client) {
    if (client->conditions) zi_unwatch(loop, SOCKET_WATCH + place(client));
    zi_unwatch(loop, BUS_WATCH + place(client));
    zi_end(client->bus);
    zi_end(client->socket);
    client->socket = client->bus = 0;
}

static void watch_socket(struct client *client) {
    uint32_t conditions = ZI_READABLE | ZI_HUP | ZI_ERROR | (client->out_bytes ? ZI_WRITABLE : 0);
    if (conditions == client->conditions) return;
    if (client->conditions) zi_unwatch(loop, SOCKET_WATCH + place(client));
    zi_watch(loop, client->socket, conditions, SOCKET_WATCH + place(client));
    client->conditions = conditions;
}

/* Writes what waits. Returns 0 if the client is gone. */
static int flush(struct client *client) {
    uint32_t start = 0;
    while (start < client->out_bytes) {
        int32_t count = zi_write(client->socket, zi_at(client->out + start), client->out_bytes - start);
        if (count == ZI_E_AGAIN) break;
        if (count < 0) {
            leave(client);
            return 0;
        }
        start += (uint32_t)count;
    }
    __builtin_memmove(client->out, client->out + start, client->out_bytes - start);
    client->out_bytes -= start;
    watch_socket(client);
    return 1;
}

/* Takes the events of the room that wait for a client. */
static void deliver(struct client *client) {
    struct zi_frame frame;
    for (;;) {
        if (client->out_bytes + LINE_BYTES_MAX > OUTPUT_BYTES_MAX) {
            if (!flush(client)) return;
            if (client->out_bytes + LINE_BYTES_MAX > OUTPUT_BYTES_MAX) {
                /* The client does not read: the others must not wait for it, nor the server fill its memory. */
                leave(client);
                return;
            }
        }
        int32_t got = zi_receive(client->bus, &frame);
        if (got == ZI_E_CLOSED) {
            leave(client); /* The bus is a server that is gone. */
            return;
        }
        if (got != 1) break;
        const uint8_t *text = (const uint8_t *)REFUSED;
        uint32_t bytes = sizeof REFUSED - 1;
        if (frame.op == EVENT) {
            /* Subscription, topic, data. Lines of others than this program may be longer: they are cut. */
            uint32_t at = 4 + 4 + zi_get32(frame.payload + 4);
            bytes = zi_get32(frame.payload + at);
            if (bytes > LINE_BYTES_MAX) bytes = LINE_BYTES_MAX;
            text = frame.payload + at + 4;
        } else if (frame.is_ok) {
            continue;
        }
        zi_put(client->out + client->out_bytes, text, bytes);
        client->out_bytes += bytes;
    }
    flush(client);
}

static void publish(struct client *client, uint32_t bytes) {
    static uint8_t payload[LINE_BYTES_MAX + 64];
    uint8_t *to = zi_put_text(payload, ROOM, sizeof ROOM - 1);
    to = zi_put_text(to, client->line, bytes);
    /* `deliver` reads the reply, which may come before or after this client's own copy of the line. */
    zi_send(client->bus, PUBLISH, 1, payload, (uint32_t)(to - payload));
}

/* Reads what a client wrote and publishes the lines in it. */
static void hear(struct client *client) {
    for (;;) {
        uint32_t room = LINE_BYTES_MAX - client->line_bytes;
        int32_t count = zi_read(client->socket, zi_at(client->line + client->line_bytes), room);
        if (count == ZI_E_AGAIN) return;
        if (count <= 0) {
            leave(client);
            return;
        }
        client->line_bytes += (uint32_t)count;
        for (uint32_t i = 0; i < client->line_bytes;) {
            int is_full = client->line_bytes == LINE_BYTES_MAX && i + 1 == LINE_BYTES_MAX;
            if (client->line[i++] != '\n' && !is_full) continue;
            publish(client, i);
            client->line_bytes -= i;
            __builtin_memmove(client->line, client->line + i, client->line_bytes);
            i = 0;
        }
    }
}

/* Returns 0 if there is no place for another client. */
static int enter(zi_handle socket) {
    struct client *client = clients;
    struct zi_frame reply;
    uint8_t payload[64], *to;
    while (client < clients + CLIENTS_MAX && client->socket) client++;
    if (client == clients + CLIENTS_MAX) return 0;
    zi_handle bus = zi_open("event", "bus", 0, 0);
    if (bus < 0) return 0;
    to = zi_put32(zi_put_text(payload, ROOM, sizeof ROOM - 1), 0);
    if (zi_request(bus, SUBSCRIBE, 1, payload, (uint32_t)(to - payload), &reply) < 0) {
        zi_end(bus);
        return 0;
    }
    client->socket = socket;
    client->bus = bus;
    client->line_bytes = client->conditions = 0;
    client->out_bytes = (uint32_t)(zi_put(client->out, "welcome\n", 8) - client->out);
    zi_watch(loop, bus, ZI_READABLE, BUS_WATCH + place(client));
    flush(client);
    return 1;
}

ZI_MAIN int32_t guest_main(zi_handle request, zi_handle response) {
    struct zi_event events[EVENTS_MAX];
    char text[16];
    uint32_t port = 0;
    (void)request, (void)response;
    if (zi_argument(1, text, sizeof text)) port = (uint32_t)zi_number(text);
    zi_handle bus = zi_open("event", "bus", 0, 0);
    if (bus < 0) return fail("opening event/bus (granted by --allow event/bus)");
    zi_end(bus);
    if ((loop = zi_open("sys", "loop", 0, 0)) < 0) return fail("opening sys/loop");
    if ((listener = zi_listen("127.0.0.1", port, &port)) < 0) return fail("listening (granted by --net)");
    if (zi_watch(loop, listener, ZI_READABLE, LISTENER_WATCH) < 0) return fail("WATCH");
    zi_print(1, "listening on 127.0.0.1:");
    zi_print_number(1, port);
    zi_print(1, "\n");
    for (;;) {
        int32_t count = zi_poll(loop, events, EVENTS_MAX, (uint32_t)ZI_FOREVER);
        if (count < 0) return fail("POLL");
        for (int32_t i = 0; i < count; i++) {
            uint64_t id = events[i].id;
            if (id == LISTENER_WATCH) {
                zi_handle socket;
                while ((socket = zi_accept(listener)) >= 0)
                    if (!enter(socket)) zi_end(socket);
            } else if (id >= BUS_WATCH) {
                struct client *client = &clients[id - BUS_WATCH];
                if (client->bus == events[i].handle) deliver(client);
            } else {
                struct client *client = &clients[id - SOCKET_WATCH];
                if (client->socket != events[i].handle) continue;
                if ((events[i].conditions & ZI_WRITABLE) && !flush(client)) continue;
                hear(client);
            }
        }
    }
}
