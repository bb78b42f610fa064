;; A TCP echo server for one client, with one place where it waits. It writes the four bytes of its port to handle 1.
(module
  (import "env" "zi_read" (func $read (param i32 i64 i32) (result i32)))
  (import "env" "zi_write" (func $write (param i32 i64 i32) (result i32)))
  (import "env" "zi_cap_open" (func $open (param i64) (result i32)))
  (memory (export "memory") 3)
  (global (export "__heap_base") i32 (i32.const 65536))

  ;; Strings: "sys" at 1024, "loop" at 1032, "net" at 1040, "tcp" at 1048, the address at 1056.
  (data (i32.const 1024) "sys\00\00\00\00\00loop\00\00\00\00net\00\00\00\00\00tcp\00\00\00\00\00127.0.0.1")
  ;; At 1100: open sys/loop. kind, its length, name, its length, mode, params, their length.
  (data (i32.const 1100)
    "\00\04\00\00\00\00\00\00" "\03\00\00\00" "\08\04\00\00\00\00\00\00" "\04\00\00\00"
    "\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00")
  ;; At 1200: open net/tcp with the 32 bytes at 1300.
  (data (i32.const 1200)
    "\10\04\00\00\00\00\00\00" "\03\00\00\00" "\18\04\00\00\00\00\00\00" "\03\00\00\00"
    "\00\00\00\00" "\14\05\00\00\00\00\00\00" "\20\00\00\00")
  ;; At 1300: host, its length, port 0, listen, the default backlog, where the port is written (1400).
  (data (i32.const 1300)
    "\20\04\00\00\00\00\00\00" "\09\00\00\00" "\00\00\00\00" "\01\00\00\00" "\00\00\00\00" "\78\05\00\00\00\00\00\00")
  ;; At 1500: WATCH. magic, version, op, rid, status, reserved, length; handle (1524), readable, id (1532), flags.
  (data (i32.const 1500)
    "ZCL1" "\01\00" "\01\00" "\01\00\00\00" "\00\00\00\00" "\00\00\00\00" "\14\00\00\00"
    "\00\00\00\00" "\01\00\00\00" "\01\00\00\00\00\00\00\00" "\00\00\00\00")
  ;; At 1600: POLL for up to 8 events, without a timeout.
  (data (i32.const 1600)
    "ZCL1" "\01\00" "\05\00" "\02\00\00\00" "\00\00\00\00" "\00\00\00\00" "\08\00\00\00"
    "\08\00\00\00" "\ff\ff\ff\ff")

  (func $must (param $result i32) (result i32)
    (if (i32.lt_s (local.get $result) (i32.const 0)) (then (unreachable)))
    (local.get $result))

  ;; Sends a request to the loop and reads the reply to 131072.
  (func $request (param $loop i32) (param $at i64) (param $length i32)
    (drop (call $must (call $write (local.get $loop) (local.get $at) (local.get $length))))
    (drop (call $must (call $read (local.get $loop) (i64.const 131072) (i32.const 65536)))))

  (func $watch (param $loop i32) (param $handle i32) (param $id i64)
    (i32.store (i32.const 1524) (local.get $handle))
    (i64.store (i32.const 1532) (local.get $id))
    (call $request (local.get $loop) (i64.const 1500) (i32.const 44)))

  (func (export "main") (param i32 i32) (result i32)
    (local $loop i32) (local $listener i32) (local $client i32) (local $count i32)
    (local.set $loop (call $must (call $open (i64.const 1100))))
    (local.set $listener (call $must (call $open (i64.const 1200))))
    (call $watch (local.get $loop) (local.get $listener) (i64.const 1))
    (drop (call $must (call $write (i32.const 1) (i64.const 1400) (i32.const 4))))
    (call $request (local.get $loop) (i64.const 1600) (i32.const 32))
    ;; The record of an accepted connection begins with its handle.
    (drop (call $must (call $read (local.get $listener) (i64.const 1700) (i32.const 32))))
    (local.set $client (i32.load (i32.const 1700)))
    (call $watch (local.get $loop) (local.get $client) (i64.const 2))
    (loop $again
      (call $request (local.get $loop) (i64.const 1600) (i32.const 32))
      (local.set $count (call $read (local.get $client) (i64.const 65536) (i32.const 65536)))
      ;; Nothing to read after all.
      (br_if $again (i32.eq (local.get $count) (i32.const -6)))
      (if (i32.le_s (local.get $count) (i32.const 0)) (then (return (i32.const 0))))
      (drop (call $must (call $write (local.get $client) (i64.const 65536) (local.get $count))))
      (br $again))
    (i32.const 0)))
