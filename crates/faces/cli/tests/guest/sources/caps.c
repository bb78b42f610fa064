/* Writes the reply of CAPS_LIST to its standard output, as text. */
#include "zi.h"

ZI_MAIN int32_t guest_main(zi_handle request, zi_handle response) {
    static uint8_t reply[ZI_FRAME_MAX];
    uint8_t ask[ZI_FRAME_HEAD] = {'Z', 'C', 'L', '1', 1, 0, 1, 0};
    (void)request;
    int32_t count = zi_ctl(zi_at(ask), sizeof ask, zi_at(reply), sizeof reply);
    if (count < 0) return -count;
    /* Lengths are no text. */
    for (int32_t at = 0; at < count; at++)
        if (reply[at] >= 128) reply[at] = '?';
    return zi_write(response, zi_at(reply), (uint32_t)count) == count ? 0 : 1;
}
