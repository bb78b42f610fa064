/* A native guest that writes to a connection until it is told that the peer has gone. Argument: the server's port. */
#include "guest.h"

int main(int argc, char **argv) {
    static uint8_t reply[256];
    static const char text[] = "anybody there?";
    zi_handle_t loop = open_cap("sys", "loop", NULL, 0);
    zi_handle_t stream;
    int32_t count;
    CHECK(argc >= 2);
    stream = connect_to((uint32_t)atoi(argv[1]));
    CHECK(loop >= 3 && stream >= 3);
    watch(loop, stream, WRITABLE, 1);
    do {
        poll_one(loop, reply, sizeof reply);
        count = zi_write(stream, ZI_PTR(text), sizeof text);
    } while (count >= 0 || count == ZI_E_AGAIN);
    CHECK(count == ZI_E_CLOSED || count == ZI_E_IO);
    print("gone\n");
    return 0;
}
