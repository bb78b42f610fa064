;; A program of effects, written by hand: it asks for the price of article 7 and for the tax on that price, pauses for 10
;; milliseconds, and returns price plus tax. docs/effects.md walks through its bytes.
(module
  (@custom "__voyd_effect_table"
    "\02\00\00\00\03\00\00\00"
    "\97\d8\cc\c5\8d\ce\4c\81\00\00\00\00\00\00\00\00\00\00\00\00\11\11\11\11\0b\00\00\00"
    "\97\d8\cc\c5\8d\ce\4c\81\00\00\00\00\01\00\00\00\01\00\00\00\22\22\22\22\1d\00\00\00"
    "\97\d8\cc\c5\8d\ce\4c\81\00\00\00\00\02\00\00\00\01\00\00\00\33\33\33\33\2d\00\00\00"
    "shop.order\00shop::Order.price\00shop::Order.tax\00shop::Order.pause\00")
  ;; What the host is handed after every step: status (0 = value, 1 = effect), continuation, length of the payload.
  (type $result (struct (field i32) (field anyref) (field i32)))
  ;; The continuation: the operation that was asked for, and the sum so far.
  (type $continuation (struct (field $op i32) (field $sum i32)))
  (memory (export "memory") 1)
  (export "effects_memory" (memory 0))
  (global $handles (mut i32) (i32.const 0))
  (func (export "init_effects") (param i32) (global.set $handles (local.get 0)))
  (func (export "effect_status") (param (ref null $result)) (result i32) (struct.get $result 0 (local.get 0)))
  (func (export "effect_cont") (param (ref null $result)) (result anyref) (struct.get $result 1 (local.get 0)))
  (func (export "effect_len") (param (ref null $result)) (result i32) (struct.get $result 2 (local.get 0)))

  (data $request "\86\a7opIndex\00\aaresumeKind\00\a6handle\00\a8effectId\d3\81L\ce\8d\c5\cc\d8\97\a4opId\00\a4args\91\d2\00\00\00\00")
  (func $ask (param $op i32) (param $kind i32) (param $arg i32) (param $sum i32) (param $p i32) (param $cap i32)
    (result (ref null $result))
    (if (i32.gt_u (i32.const 65) (local.get $cap)) (then (unreachable)))
    (memory.init $request (local.get $p) (i32.const 0) (i32.const 65))
    (i32.store8 offset=9 (local.get $p) (local.get $op))
    (i32.store8 offset=21 (local.get $p) (local.get $kind))
    (i32.store8 offset=29 (local.get $p)
      (i32.load8_u (i32.add (global.get $handles) (i32.shl (local.get $op) (i32.const 2)))))
    (i32.store8 offset=53 (local.get $p) (local.get $op))
    (call $write32 (i32.add (local.get $p) (i32.const 61)) (local.get $arg))
    (struct.new $result (i32.const 1) (struct.new $continuation (local.get $op) (local.get $sum)) (i32.const 65)))

  (func (export "main_effectful") (param $p i32) (param $cap i32) (result (ref null $result))
    (call $ask (i32.const 0) (i32.const 0) (i32.const 7) (i32.const 0) (local.get $p) (local.get $cap)))

  (func (export "resume_effectful") (param $c (ref null $continuation)) (param $p i32) (param $len i32) (param $cap i32)
    (result (ref null $result)) (local $op i32) (local $sum i32)
    (local.set $op (struct.get $continuation $op (local.get $c)))
    (local.set $sum (struct.get $continuation $sum (local.get $c)))
    ;; The reply to price: the tax on it is next.
    (if (i32.eqz (local.get $op)) (then
      (local.set $sum (call $read (local.get $p)))
      (return (call $ask (i32.const 1) (i32.const 1) (local.get $sum) (local.get $sum) (local.get $p) (local.get $cap)))))
    ;; The reply to tax: a pause is next.
    (if (i32.eq (local.get $op) (i32.const 1)) (then
      (local.set $sum (i32.add (local.get $sum) (call $read (local.get $p))))
      (return (call $ask (i32.const 2) (i32.const 1) (i32.const 10) (local.get $sum) (local.get $p) (local.get $cap)))))
    ;; The pause is over: an int32 of MsgPack is the result.
    (i32.store8 (local.get $p) (i32.const 0xd2))
    (call $write32 (i32.add (local.get $p) (i32.const 1)) (local.get $sum))
    (struct.new $result (i32.const 0) (ref.null any) (i32.const 5)))

  (func $write32 (param $p i32) (param $v i32)
    (i32.store8 (local.get $p) (i32.shr_u (local.get $v) (i32.const 24)))
    (i32.store8 offset=1 (local.get $p) (i32.shr_u (local.get $v) (i32.const 16)))
    (i32.store8 offset=2 (local.get $p) (i32.shr_u (local.get $v) (i32.const 8)))
    (i32.store8 offset=3 (local.get $p) (local.get $v)))
  ;; Reads a non-negative integer as the host writes it: fixint, or uint8, uint16, uint32 behind their byte.
  (func $read (param $p i32) (result i32) (local $bytes i32) (local $v i32)
    (local.set $v (i32.load8_u (local.get $p)))
    (if (i32.lt_u (local.get $v) (i32.const 0x80)) (then (return (local.get $v))))
    (local.set $bytes (i32.shl (i32.const 1) (i32.sub (local.get $v) (i32.const 0xcc))))
    (if (i32.gt_u (local.get $bytes) (i32.const 4)) (then (unreachable)))
    (local.set $v (i32.const 0))
    (loop $next
      (local.set $p (i32.add (local.get $p) (i32.const 1)))
      (local.set $v (i32.or (i32.shl (local.get $v) (i32.const 8)) (i32.load8_u (local.get $p))))
      (local.set $bytes (i32.sub (local.get $bytes) (i32.const 1)))
      (br_if $next (local.get $bytes)))
    (local.get $v)))
