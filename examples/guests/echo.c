/* A TCP echo server with three timers, and one place where it waits.
 *
 *   millrace guest target/guests/echo.wasm --net loopback -- [PORT [LIFETIME_MS]]
 *
 * PORT 0 (the default) lets the system choose. With LIFETIME_MS the server ends by itself after that time. */
#include "zi.h"

enum { CLIENTS_MAX = 64, BUFFER_BYTES = 16384, EVENTS_MAX = 32 };

/* Ids of timers, and of watches: a client's watch is its place in the table plus CLIENT_WATCH. */
enum { TICK = 1, REPORT = 2, LIFETIME = 3 };
enum { LISTENER_WATCH = 1, CLIENT_WATCH = 100 };

#define MS 1000000ull

struct client {
    zi_handle handle; /* 0: the place is free */
    uint32_t start, end; /* bytes that were read and not written yet */
    int at_end; /* the peer will send nothing more */
    uint32_t conditions; /* those of the watch */
    uint8_t bytes[BUFFER_BYTES];
};

static struct client clients[CLIENTS_MAX];
static zi_handle loop, listener;
static uint32_t open_clients;
static uint64_t ticks, accepted, echoed;
static int listening, has_news;

static void fail(const char *what, int32_t code) {
    zi_print(2, "echo: ");
    zi_print(2, what);
    zi_print(2, " failed with -");
    zi_print_number(2, (uint64_t)-code);
    zi_print(2, "\n");
    __builtin_trap();
}

static void must(const char *what, int32_t result) {
    if (result < 0) fail(what, result);
}

/* Accepts only while there is a free place; otherwise connections wait in the backlog. */
static void listen_if_there_is_room(void) {
    int has_room = open_clients < CLIENTS_MAX;
    if (has_room && !listening) must("WATCH", zi_watch(loop, listener, ZI_READABLE, LISTENER_WATCH));
    if (!has_room && listening) must("UNWATCH", zi_unwatch(loop, LISTENER_WATCH));
    listening = has_room;
}

static void set_watch(struct client *client, uint32_t conditions) {
    uint64_t id = CLIENT_WATCH + (uint64_t)(client - clients);
    if (conditions == client->conditions) return;
    if (client->conditions) must("UNWATCH", zi_unwatch(loop, id));
    if (conditions) must("WATCH", zi_watch(loop, client->handle, conditions, id));
    client->conditions = conditions;
}

static void close_client(struct client *client) {
    set_watch(client, 0);
    zi_end(client->handle);
    client->handle = 0;
    open_clients--;
    listen_if_there_is_room();
}

/* Moves bytes until the peer has to do something: send more, or read what is there. */
static void serve(struct client *client) {
    for (;;) {
        while (client->start < client->end) {
            int32_t count = zi_write(client->handle, zi_at(client->bytes + client->start), client->end - client->start);
            if (count == ZI_E_AGAIN) {
                set_watch(client, ZI_WRITABLE | ZI_HUP | ZI_ERROR);
                return;
            }
            if (count < 0) {
                close_client(client);
                return;
            }
            client->start += (uint32_t)count;
            echoed += (uint64_t)count;
            has_news = 1;
        }
        if (client->at_end) {
            close_client(client);
            return;
        }
        int32_t count = zi_read(client->handle, zi_at(client->bytes), BUFFER_BYTES);
        if (count == ZI_E_AGAIN) {
            set_watch(client, ZI_READABLE | ZI_HUP | ZI_ERROR);
            return;
        }
        if (count < 0) {
            close_client(client);
            return;
        }
        client->start = 0;
        client->end = (uint32_t)count;
        client->at_end = count == 0;
    }
}

static void accept_all(void) {
    while (open_clients < CLIENTS_MAX) {
        zi_handle handle = zi_accept(listener);
        if (handle < 0) break;
        struct client *client = clients;
        while (client->handle) client++;
        client->handle = handle;
        client->start = client->end = client->conditions = 0;
        client->at_end = 0;
        open_clients++;
        accepted++;
        has_news = 1;
        serve(client);
    }
    listen_if_there_is_room();
}

static void report(const char *word) {
    zi_print(1, word);
    zi_print(1, ": ");
    zi_print_number(1, open_clients);
    zi_print(1, " clients, ");
    zi_print_number(1, accepted);
    zi_print(1, " accepted, ");
    zi_print_number(1, echoed);
    zi_print(1, " bytes echoed, ");
    zi_print_number(1, ticks);
    zi_print(1, " ticks\n");
    has_news = 0;
}

ZI_MAIN int32_t guest_main(zi_handle request, zi_handle response) {
    struct zi_event events[EVENTS_MAX];
    char text[16];
    uint32_t port = 0;
    uint64_t lifetime_ms = 0;
    (void)request;
    if (zi_argument(1, text, sizeof text)) port = (uint32_t)zi_number(text);
    if (zi_argument(2, text, sizeof text)) lifetime_ms = zi_number(text);

    must("opening sys/loop", loop = zi_open("sys", "loop", 0, 0));
    must("listening", listener = zi_listen("127.0.0.1", port, &port));
    listen_if_there_is_room();
    must("TIMER_ARM", zi_timer(loop, TICK, 10 * MS, 10 * MS));
    must("TIMER_ARM", zi_timer(loop, REPORT, 1000 * MS, 1000 * MS));
    if (lifetime_ms) must("TIMER_ARM", zi_timer(loop, LIFETIME, lifetime_ms * MS, 0));

    zi_print(1, "listening on 127.0.0.1:");
    zi_print_number(1, port);
    zi_print(1, "\n");
    for (;;) {
        int32_t count = zi_poll(loop, events, EVENTS_MAX, (uint32_t)ZI_FOREVER);
        must("POLL", count);
        for (int32_t i = 0; i < count; i++) {
            uint64_t id = events[i].id;
            if (events[i].kind == ZI_TIMER && id == TICK) {
                ticks++;
            } else if (events[i].kind == ZI_TIMER && id == REPORT) {
                if (has_news) report("now");
            } else if (events[i].kind == ZI_TIMER) {
                report("end");
                zi_end(response);
                return 0;
            } else if (id == LISTENER_WATCH) {
                accept_all();
            } else if (clients[id - CLIENT_WATCH].handle == events[i].handle) {
                /* The comparison leaves out events of a client that an earlier event of this round closed. */
                serve(&clients[id - CLIENT_WATCH]);
            }
        }
    }
}
