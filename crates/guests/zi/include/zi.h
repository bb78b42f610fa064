/* zi.h: the calls of zABI 2.5 for native guests.
 *
 * Link with libzi.so or libzi.a. The library makes its host at the first call that needs one; environment variables
 * beginning with ZI_ say what is granted (docs/guests-native.md).
 *
 * Addresses travel as numbers: (zi_ptr_t)(uintptr_t)pointer, or ZI_PTR(pointer). A range is an address and a length. A
 * range of length 0 is never touched. Address 0 with another length is ZI_E_BOUNDS. The library cannot check any other
 * address: a range that is not memory of the program is undefined behaviour, as in memcpy.
 *
 * Calls may come from any thread. No call may come from a signal handler, nor from the child of a fork that has not
 * called exec. A call that returns int32_t returns a negative ZI_E_ code if it fails.
 *
 * All numbers in requests, replies and records are little-endian, without padding.
 */
#ifndef ZI_H
#define ZI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t zi_ptr_t;    /* an address in the guest's memory */
typedef uint32_t zi_size32_t; /* a number of bytes */
typedef int32_t zi_handle_t;  /* 0 standard input, 1 output, 2 error; others come from zi_cap_open */

#define ZI_PTR(pointer) ((zi_ptr_t)(uintptr_t)(pointer))

/* What zi_abi_version returns: 2.5. */
#define ZI_ABI_VERSION UINT32_C(0x00020005)

#define ZI_OK 0
#define ZI_E_INVALID (-1)   /* a wrong argument or request */
#define ZI_E_BOUNDS (-2)    /* a range that is not memory, or too short or too long */
#define ZI_E_NOENT (-3)     /* no such capability, entry or name */
#define ZI_E_DENIED (-4)    /* not granted, or not allowed by the policy */
#define ZI_E_CLOSED (-5)    /* the other side, or this direction, is closed */
#define ZI_E_AGAIN (-6)     /* nothing to read, or no room, yet */
#define ZI_E_NOSYS (-7)     /* the handle is not open, or cannot do that */
#define ZI_E_OOM (-8)       /* no memory, or a limit is reached */
#define ZI_E_IO (-9)        /* the operating system failed */
#define ZI_E_INTERNAL (-10) /* the host failed */

/* Flags of zi_handle_hflags. */
#define ZI_H_READABLE UINT32_C(1)
#define ZI_H_WRITABLE UINT32_C(2)
#define ZI_H_ENDABLE UINT32_C(4)
#define ZI_H_SEEKABLE UINT32_C(8)

/* Flags of a capability, in zi_cap_get. */
#define ZI_CAP_CAN_OPEN UINT32_C(1)
#define ZI_CAP_PURE UINT32_C(2)
#define ZI_CAP_MAY_BLOCK UINT32_C(4)

/* Returns the version of the calls, ZI_ABI_VERSION. */
uint32_t zi_abi_version(void);

/* Executes the control request (one ZCL1 frame) and writes the reply frame. Returns the bytes of the reply;
 * ZI_E_INVALID if it has no room. */
int32_t zi_ctl(zi_ptr_t request, zi_size32_t request_bytes, zi_ptr_t reply, zi_size32_t reply_bytes_max);

/* Reads up to bytes_max bytes. Returns their number: 0 at the end of a byte stream, ZI_E_AGAIN if nothing is there yet;
 * handle 0 waits instead. */
int32_t zi_read(zi_handle_t handle, zi_ptr_t to, zi_size32_t bytes_max);

/* Writes up to bytes bytes. Returns how many were taken. A POLL request of sys/loop waits in this call; the wait ends
 * early, perhaps without events, when another thread makes a call. */
int32_t zi_write(zi_handle_t handle, zi_ptr_t from, zi_size32_t bytes);

/* Ends a handle and releases what it holds. Ending 0, 1 or 2 does nothing; a handle that is not open is ZI_E_NOSYS. */
int32_t zi_end(zi_handle_t handle);

/* Returns the address of a new block of zero bytes, aligned to 16; 0 if the size is 0 or there is no memory. */
zi_ptr_t zi_alloc(zi_size32_t bytes);

/* Frees a block of zi_alloc. An address that is not the beginning of such a block is ZI_E_INVALID. */
int32_t zi_free(zi_ptr_t address);

/* Writes topic and message, both UTF-8, to standard error as one line of JSON. Long texts are cut. */
int32_t zi_telemetry(zi_ptr_t topic, zi_size32_t topic_bytes, zi_ptr_t message, zi_size32_t message_bytes);

/* Returns the number of capabilities that are granted. */
int32_t zi_cap_count(void);

/* Returns the bytes of a capability's entry; indexes begin at 0, and a wrong one is ZI_E_NOENT. */
int32_t zi_cap_get_size(int32_t index);

/* Writes a capability's entry: u32 kind_len, kind, u32 name_len, name, u32 flags. Returns its bytes; ZI_E_BOUNDS if it has
 * no room. */
int32_t zi_cap_get(int32_t index, zi_ptr_t to, zi_size32_t bytes_max);

/* Opens a capability and returns its handle. The request is 40 bytes: u64 kind_ptr, u32 kind_len, u64 name_ptr,
 * u32 name_len, u32 mode (0), u64 params_ptr, u32 params_len. */
zi_handle_t zi_cap_open(zi_ptr_t request);

/* Returns the ZI_H_ flags of a handle; 0 if it is not open. */
uint32_t zi_handle_hflags(zi_handle_t handle);

#ifdef __cplusplus
}
#endif

#endif /* ZI_H */
