//! The guest of a run: an export of an instance, and its continuation while it is suspended. Implements the scheduler's
//! port, [`millrace_runs::Guest`].

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_runs::{Guest, GuestStep};
use wasmtime::{AnyRef, OwnedRooted, RootScope, Store, Val};

use crate::codec::{Generation, ProtocolError};
use crate::fault::{GuestFault, Transition, TrapEffect};
use crate::instance::{EntryFunction, Functions, Growth, InstanceState, Resume, StepRef};
use crate::limits::RunLimits;
use crate::module::{ModuleCodec, ModuleInfo};
use crate::pure;
use crate::value::Value;

/// An instance of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InstanceId(pub(crate) u64);

/// The instances of a host, which its guests share.
pub(crate) type Instances = BTreeMap<InstanceId, InstanceState>;

pub(crate) struct WasmGuest {
    pub(crate) instance: InstanceId,
    /// The export's name without the suffix `_effectful`.
    pub(crate) export: Arc<str>,
    pub(crate) entry: GuestEntry,
    pub(crate) limits: RunLimits,
    pub(crate) buffer: Option<u32>,
    pub(crate) suspended: Option<Suspended>,
}

/// How a run begins.
pub(crate) enum GuestEntry {
    /// The function's name, and its arguments as the module's generation encodes them.
    Effectful { function: String, payload: Vec<u8> },
    /// The export itself, which asks for no effects.
    Pure { args: Vec<Val> },
}

/// A request that waits for its reply. Taken when it is resumed, so a continuation is used once.
pub(crate) struct Suspended {
    continuation: OwnedRooted<AnyRef>,
    op: u32,
    reply_fingerprint: String,
}

/// `completion_kind` of an export, in generation B.
const COMPLETES_EXPORT: i32 = 0;

const STATUS_VALUE: i32 = 0;
const STATUS_EFFECT: i32 = 1;

/// The length by which modules of generation B say that a payload does not fit.
const LEN_OVERFLOW: i32 = -1;

type Step = GuestStep<Value, GuestFault>;

impl Guest for WasmGuest {
    type Value = Value;
    type Fault = GuestFault;
    type Host = Instances;

    fn start(&mut self, host: &mut Instances) -> Step {
        let Some(instance) = host.get_mut(&self.instance) else {
            return GuestStep::Failed(GuestFault::InstanceGone);
        };
        self.try_start(instance).unwrap_or_else(GuestStep::Failed)
    }

    fn resume(&mut self, host: &mut Instances, reply: Value) -> Step {
        let Some(instance) = host.get_mut(&self.instance) else {
            return GuestStep::Failed(GuestFault::InstanceGone);
        };
        self.try_resume(instance, reply).unwrap_or_else(GuestStep::Failed)
    }

    fn release(self, host: &mut Instances) {
        if let (Some(instance), Some(buffer)) = (host.get_mut(&self.instance), self.buffer) {
            instance.give_back_buffer(buffer);
        }
    }
}

impl WasmGuest {
    fn try_start(&mut self, instance: &mut InstanceState) -> Result<Step, GuestFault> {
        let (function, payload) = match &mut self.entry {
            GuestEntry::Effectful { function, payload } => (function, std::mem::take(payload)),
            GuestEntry::Pure { args } => {
                let args = std::mem::take(args);
                return self.call_pure(instance, &args);
            }
        };
        let entry = instance.functions.entry(&mut instance.store, function);
        let entry = entry.map_err(|error| GuestFault::Refused(error.to_string()))?;
        let buffer = instance.take_buffer()?;
        self.buffer = Some(buffer);
        let capacity = instance.buffers.bytes;
        if payload.len() > capacity as usize {
            let (len, buffer_bytes) = (payload.len(), capacity as usize);
            return Err(ProtocolError::ArgumentsTooLarge { len, buffer_bytes }.into());
        }
        write(instance, buffer, &payload)?;
        let (at, len, cap) = (buffer.cast_signed(), length(&payload), capacity.cast_signed());
        self.step(instance, Transition::EffectfulEntry, None, |scope| match entry {
            EntryFunction::A(function) => function.call(scope, (at, cap)),
            EntryFunction::B(function) => function.call(scope, (at, len, at, cap)),
        })
    }

    fn call_pure(&self, instance: &mut InstanceState, args: &[Val]) -> Result<Step, GuestFault> {
        let function = instance.functions.pure(&mut instance.store, &self.export);
        let function = function.map_err(|error| GuestFault::Refused(error.to_string()))?;
        instance.arm(&self.limits);
        let mut results = vec![Val::I32(0); function.ty(&instance.store).results().len()];
        match function.call(&mut instance.store, args, &mut results) {
            Ok(()) => Ok(GuestStep::Done(pure::result(&results))),
            Err(error) => Err(instance.fault(&error, Transition::PureEntry, None, &self.limits)),
        }
    }

    fn try_resume(&mut self, instance: &mut InstanceState, reply: Value) -> Result<Step, GuestFault> {
        let (Some(suspended), Some(buffer)) = (self.suspended.take(), self.buffer) else {
            return Err(ProtocolError::NoContinuation.into());
        };
        let info = instance.module.info.clone();
        let op = &info.table[suspended.op as usize];
        let mut payload = std::mem::take(&mut instance.scratch);
        payload.clear();
        let encoded = info.codec.seam().reply(op, &suspended.reply_fingerprint, reply, &mut payload);
        let capacity = instance.buffers.bytes;
        let fits = payload.len() <= capacity as usize;
        let written = encoded.map_err(GuestFault::from).and_then(|()| match fits {
            true => write(instance, buffer, &payload),
            false => Err(ProtocolError::ReplyTooLarge.into()),
        });
        let len = length(&payload);
        // The encoded reply may have any size; only one that fits the buffer is kept as scratch for the next reply.
        instance.scratch = if fits { payload } else { Vec::new() };
        written?;
        let (at, cap) = (buffer.cast_signed(), capacity.cast_signed());
        let resume = instance.functions.resume.clone();
        let export_id = export_id(&info, &self.export);
        let effect = TrapEffect {
            effect_id: op.effect_id.clone(),
            op_id: op.op_id,
            label: op.label.clone(),
            kind: op.kind,
        };
        let continuation = suspended.continuation;
        self.step(instance, Transition::ResumeEffectful, Some(effect), |scope| {
            let continuation = Some(continuation.to_rooted(&mut *scope));
            match resume {
                Resume::A(function) => function.call(scope, (continuation, at, len, cap)),
                Resume::B(function) => {
                    function.call(scope, (continuation, at, len, cap, COMPLETES_EXPORT, export_id))
                }
            }
        })
    }

    /// Calls the module once and reads its result: one continuation step, in one scope for its references.
    fn step(
        &mut self,
        instance: &mut InstanceState,
        transition: Transition,
        effect: Option<TrapEffect>,
        call: impl FnOnce(&mut Scope<'_>) -> wasmtime::Result<StepRef>,
    ) -> Result<Step, GuestFault> {
        instance.arm(&self.limits);
        let InstanceState { store, functions, .. } = &mut *instance;
        let read = read_step(&mut RootScope::new(store), functions, transition, call);
        let read = read.map_err(|(error, at)| instance.fault(&error, at, effect, &self.limits))?;
        let info = instance.module.info.clone();
        match read.status {
            STATUS_VALUE => {
                let bytes = self.payload(instance, read.len)?;
                Ok(GuestStep::Done(info.codec.seam().result(&self.export, bytes)?))
            }
            STATUS_EFFECT => {
                let bytes = self.payload(instance, read.len)?;
                let request = info.codec.seam().request(bytes, &info.table)?;
                let continuation = read.continuation.ok_or(ProtocolError::NoContinuation)?;
                let (op, reply_fingerprint) = (request.op, request.reply_fingerprint);
                self.suspended = Some(Suspended { continuation, op, reply_fingerprint });
                Ok(GuestStep::Request { op, args: request.args })
            }
            other => Err(ProtocolError::Status(other).into()),
        }
    }

    fn payload<'a>(&self, instance: &'a InstanceState, len: i32) -> Result<&'a [u8], ProtocolError> {
        let buffer_bytes = instance.buffers.bytes as usize;
        let len_bytes = match usize::try_from(len) {
            Ok(0) => return Err(ProtocolError::NoPayload),
            Ok(len) => len,
            Err(_) if len == LEN_OVERFLOW && instance.module.info.generation == Generation::B => {
                return Err(ProtocolError::Overflow { buffer_bytes });
            }
            Err(_) => return Err(ProtocolError::NoPayload),
        };
        let lie = ProtocolError::LengthLie { len, buffer_bytes };
        let Some(buffer) = self.buffer.filter(|_| len_bytes <= buffer_bytes) else { return Err(lie) };
        let start = buffer as usize;
        instance.memory.data(&instance.store).get(start..start + len_bytes).ok_or(lie)
    }
}

type Scope<'a> = RootScope<&'a mut Store<Growth>>;

/// The results of the module's functions that describe a step.
struct ReadStep {
    status: i32,
    len: i32,
    continuation: Option<OwnedRooted<AnyRef>>,
}

fn read_step(
    scope: &mut Scope<'_>,
    functions: &Functions,
    transition: Transition,
    call: impl FnOnce(&mut Scope<'_>) -> wasmtime::Result<StepRef>,
) -> Result<ReadStep, (wasmtime::Error, Transition)> {
    let result = call(scope).map_err(|error| (error, transition))?;
    let unread = |error| (error, Transition::EffectStatus);
    let status = functions.effect_status.call(&mut *scope, result).map_err(unread)?;
    let len = functions.effect_len.call(&mut *scope, result).map_err(unread)?;
    let continuation = match status {
        STATUS_EFFECT => functions.effect_cont.call(&mut *scope, result).map_err(unread)?,
        _ => None,
    };
    let continuation =
        continuation.map(|found| found.to_owned_rooted(&mut *scope)).transpose().map_err(unread)?;
    Ok(ReadStep { status, len, continuation })
}

fn write(instance: &mut InstanceState, buffer: u32, payload: &[u8]) -> Result<(), GuestFault> {
    let written = instance.memory.write(&mut instance.store, buffer as usize, payload);
    written.map_err(|_| GuestFault::NoRoomForBuffer { buffer_bytes: instance.buffers.bytes })
}

/// The length of a payload, which fits its buffer, whose size is a u32.
fn length(payload: &[u8]) -> i32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX).cast_signed()
}

fn export_id(info: &ModuleInfo, export: &str) -> i32 {
    match &info.codec {
        ModuleCodec::A(_) => 0,
        ModuleCodec::B(codec) => codec.export_id(export).cast_signed(),
    }
}
