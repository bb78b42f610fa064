//! Timers and deadlines: set, fired, restored, cancelled.

pub(crate) mod builtin;
pub(crate) mod deadlines;
pub(crate) mod firing;
pub(crate) mod set_timer;
pub(crate) mod template;
pub(crate) mod timer_errors;
pub(crate) mod timer_list;
pub(crate) mod timer_queue;
pub(crate) mod timers;
